"""``epochal drill``: what a recovery really takes, by part, on a copy of the checkpoint and in new processes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from epochal.cli import progress
from epochal.cli.ending import ended_in_order
from epochal.cli.streams import reach
from epochal.cli.text import counted, key_values, print_answer, table
from epochal.txn.access import refuse_unreachable
from epochal.txn.claims import same_place
from epochal.txn.errors import OptionError, Refused
from epochal.txn.files import is_local, join, local_path
from epochal.txn.model import Json

if TYPE_CHECKING:
    from epochal.spark_plugins.recovery.drill import Drilled


@ended_in_order()
def run(
    path: str, journal: str | None, *, file: str | None, stream: str | None, cores: int | None, as_json: bool
) -> int:
    """Drill, and print the parts beside their predictions."""
    from epochal.spark_plugins.recovery.drill import Query, drill

    if stream is not None and file is None:
        raise OptionError("epochal drill", ["--stream: name the settings file too, by --file"])
    files, place = reach(path)
    query = None if file is None else Query(file=file, stream=_stream_of(file, stream, place))
    with refuse_unreachable(
        f"the checkpoint {place}", "Name the checkpointLocation of a query, as a user who may read"
    ):
        if not files.names(place):
            raise Refused(f"{place}: there is no such folder, or it is empty. Name the checkpointLocation of a query")
    slots = cores or os.cpu_count() or 1
    kept = journal or join(place, "epochal")
    with progress.task(f"drilling {place}") as say:
        found = drill(
            files,
            place,
            query=query,
            journal=kept if files.names(kept) or journal else None,
            cores=slots,
            say=lambda text: say(f"drill: {text}"),
        )
    print_answer(json.dumps(to_json(place, found, slots), indent=2) if as_json else to_text(place, found, slots))
    return 0


def _stream_of(file: str, stream: str | None, place: str) -> str:
    """The name of the stream in a settings file whose query is to be run. Refused if its checkpoint is another one."""
    from epochal.spark_plugins.streams.reading import from_file

    given = from_file(file).only([] if stream is None else [stream])
    if given.faults:
        raise OptionError("epochal drill", list(given.faults))
    names = list(given.streams)
    if len(names) != 1:
        raise OptionError("epochal drill", [f"--stream: name one of the streams of {file}: {', '.join(names)}"])
    own = given.streams[names[0]].get("checkpoint")
    if own is not None and not _is_same(theirs := reach(own)[1], place):
        raise Refused(
            f"the checkpoint of stream {names[0]!r} in {file} is {theirs}, not {place}. Nothing was run: its query "
            "does not fit another state. Name its own checkpoint, or the file of the stream that runs here"
        )
    return names[0]


def _is_same(one: str, other: str) -> bool:
    if is_local(one) and is_local(other):
        return os.path.realpath(local_path(one)) == os.path.realpath(local_path(other))
    return same_place(one, other)


def _parts(found: Drilled) -> list[tuple[str, float | None, float | None]]:
    """Name, measured and predicted seconds of each part."""
    expected = found.predicted
    return [
        ("session", found.session, expected.session),
        ("query", found.query, expected.query),
        ("load", found.load, expected.load),
        ("replay", found.replay, expected.replay),
        ("epoch", found.first, expected.epoch),
        ("sinks", found.sinks, found.sinks_predicted),
        ("total", found.total, expected.total + (found.sinks_predicted or 0.0)),
    ]


def to_json(place: str, found: Drilled, cores: int) -> dict[str, Json]:
    """The answer as JSON, in seconds."""
    return {
        "checkpoint": place,
        "epoch": found.epoch,
        "cores": cores,
        "how": "stores" if found.total is None else "query",
        "extent": found.state.extent,
        "bytes": found.state.bytes,
        "parts": {
            name: {"measured_seconds": _rounded(measured), "predicted_seconds": _rounded(expected)}
            for name, measured, expected in _parts(found)
        },
        "error": None if found.error is None else round(found.error, 4),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


WORDS = {
    "session": "process and Spark session",
    "query": "start of the query",
    "load": "stores opened, snapshots loaded",
    "replay": "changes replayed",
    "epoch": "first epoch",
    "sinks": "sinks' state, from the journal",
    "total": "all of it",
}


def to_text(place: str, found: Drilled, cores: int) -> str:
    """The answer as text."""
    cells = [[WORDS[name], _measured(name, took), _seconds(expected)] for name, took, expected in _parts(found)]
    parts = [
        key_values(
            [
                ("checkpoint", place),
                ("recovered", f"epoch {found.epoch} again, as after a crash just before its commit"),
                ("on", counted(cores, "core")),
            ]
        ),
        table(["PART", "MEASURED", "PREDICTED"], cells, right=["MEASURED", "PREDICTED"]),
    ]
    if found.total is None:
        parts.append(
            "The stores were restored alone: the query is not known here, so its start and its first epoch were not "
            "run. For a stream of a settings file, name it by --file"
        )
    elif found.error is not None:
        parts.append(_compared(found))
    return "\n\n".join(parts)


def _compared(found: Drilled) -> str:
    """What was predicted beside what it took, and by what."""
    assert found.total is not None
    expected = found.predicted.total + (found.sinks_predicted or 0.0)
    text = f"predicted {expected:.1f} s, took {found.total:.1f} s ({found.total / expected:.1f} x)"
    if found.by_guesses:
        text += ". The prediction is by guesses: `epochal plan-recovery` measures this machine"
    return text


def _measured(name: str, took: float | None) -> str:
    """The first epoch is what is left of a time. Nothing is left if its stores took as long when restored alone."""
    return "not measurable" if name == "epoch" and took is not None and took <= 0 else _seconds(took)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
