"""What is refused before the first row: all that is wrong, of all sinks, in one error or one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from epochal.txn.errors import BadRows, EpochalError, Refused, all_in_one
from epochal.txn.files import is_within
from epochal.txn.participant import Participant, description_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Fault: TypeAlias = str | Exception  # a text about the frame; or what a sink, its store or Spark raised

RESERVED = "_epochal_"  # the prefix of columns that sinks add temporarily


def reserved_columns(columns: Iterable[str]) -> list[str]:
    """What is wrong with a frame's columns for every sink."""
    return [
        f"column {name!r}: names that begin with {RESERVED} are reserved. Rename it"
        for name in columns
        if name.lower().startswith(RESERVED)
    ]


def faults(
    sinks: Sequence[Participant[DataFrame]], *, frame: DataFrame | None = None, mode: str | None = None
) -> list[Fault]:
    """All that is wrong with a frame and an output mode, as far as they are known, for all of the sinks."""
    found: list[Fault] = [] if frame is None else [*reserved_columns(frame.columns)]
    for sink in sinks:
        for check in _checks(sink, frame, mode):
            try:
                found += check()
            except (EpochalError, OSError, PySparkException, Py4JJavaError) as fault:
                found.append(fault)
    return found


def _checks(
    sink: Participant[DataFrame], frame: DataFrame | None, mode: str | None
) -> Iterator[Callable[[], Sequence[str]]]:
    def of_frame(given: DataFrame) -> list[str]:
        return [f"sink {sink.name!r}: {fault}" for fault in sink.check_frame(given)]

    def of_mode(given: str) -> list[str]:
        sink.check_output_mode(given)
        return []

    if frame is not None:
        yield partial(of_frame, frame)
    if mode is not None:
        yield partial(of_mode, mode)


def refusals(checks: Iterable[Callable[[], None]]) -> list[Fault]:
    """What each of several checks refuses."""
    found: list[Fault] = []
    for check in checks:
        try:
            check()
        except EpochalError as fault:
            found.append(fault)
    return found


def refuse(found: Sequence[Fault]) -> None:
    """Raise all faults in one error. One that is not ours, such as a store that is away, is raised as it is."""
    refused: list[EpochalError] = []
    if texts := [fault for fault in found if isinstance(fault, str)]:
        lines = "".join("\n  - " + text.replace("\n", "\n    ") for text in texts)
        refused.append(BadRows(f"the frame does not fit the sinks. Nothing was written:{lines}"))
    for fault in found:
        if isinstance(fault, EpochalError):
            refused.append(fault)
        elif isinstance(fault, Exception):
            raise fault
    if refused:
        raise all_in_one(refused)


def misplaced(sinks: Sequence[Participant[DataFrame]], checkpoint: str) -> list[Fault]:
    """Targets that are the checkpoint, or inside it."""
    places = [(sink.name, folder) for sink in sinks if (folder := folder_of(sink)) is not None]
    return [
        Refused(
            f"sink {name!r}: its target {target} is the query's checkpoint, or is inside it ({checkpoint}). Spark and "
            "epochal keep their own files there, and who removes the checkpoint to start over would remove the rows "
            "too. Nothing was written. Give the sink a folder of its own"
        )
        for name, target in places
        if is_within(target, checkpoint)
    ]


def folder_of(sink: Participant[DataFrame]) -> str | None:
    """The folder that a sink writes to; None if it is another kind of store."""
    described = description_of(sink)
    is_folder = "target" in described.settings and not described.target.startswith(f"{described.kind}:")
    return described.target if is_folder else None
