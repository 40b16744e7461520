"""What is refused before the first row: all that is wrong, of all sinks, in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from epochal.txn.errors import BadRows, EpochalError, Refused, all_in_one
from epochal.txn.files import is_within
from epochal.txn.participant import Participant, description_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESERVED = "_epochal_"  # the prefix of columns that sinks add temporarily


def check_all(checks: Iterable[Callable[[], None]]) -> None:
    """Carry out all checks, and raise what they refuse in one error."""
    refused: list[EpochalError] = []
    for check in checks:
        try:
            check()
        except EpochalError as fault:
            refused.append(fault)
    if refused:
        raise all_in_one(refused)


def reserved_columns(columns: Iterable[str]) -> list[str]:
    """What is wrong with a frame's columns for every sink."""
    return [
        f"column {name!r}: names that begin with {RESERVED} are reserved. Rename it"
        for name in columns
        if name.lower().startswith(RESERVED)
    ]


def check_names(columns: Iterable[str]) -> None:
    """Refuse columns that no sink can store."""
    _refuse([f"\n  - {fault}" for fault in reserved_columns(columns)])


def check_frame(sinks: Sequence[Participant[DataFrame]], frame: DataFrame) -> None:
    """Refuse a frame that a sink cannot store."""
    found = [f"\n  - {fault}" for fault in reserved_columns(frame.columns)]

    def check(sink: Participant[DataFrame]) -> None:
        found.extend(f"\n  - sink {sink.name!r}: {fault}" for fault in sink.check_frame(frame))

    check_all([*(partial(check, sink) for sink in sinks), lambda: _refuse(found)])


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        raise BadRows(f"the frame does not fit the sinks. Nothing was written:{''.join(faults)}")


def check_output_mode(sinks: Sequence[Participant[DataFrame]], mode: str) -> None:
    """Refuse an output mode that would make a store wrong."""
    check_all([partial(sink.check_output_mode, mode) for sink in sinks])


def check_places(sinks: Sequence[Participant[DataFrame]], checkpoint: str) -> None:
    """Refuse a target that is the checkpoint, or inside it."""
    refused: list[EpochalError] = []
    for sink in sinks:
        described = description_of(sink)
        is_folder = "target" in described.settings and not described.target.startswith(f"{described.kind}:")
        if is_folder and is_within(described.target, checkpoint):
            refused.append(
                Refused(
                    f"sink {sink.name!r}: its target {described.target} is the query's checkpoint, or is inside it "
                    f"({checkpoint}). Spark and epochal keep their own files there, and who removes the checkpoint to "
                    "start over would remove the rows too. Nothing was written. Give the sink a folder of its own"
                )
            )
    if refused:
        raise all_in_one(refused)
