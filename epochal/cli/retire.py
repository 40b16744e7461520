"""``epochal retire``: a stream is over for good, and monitors are to leave it alone; ``--undo`` takes that back.

Refused as long as anything of the stream waits for somebody: a driver that lives, an epoch that is not visible or in
doubt, rows in open parts.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
from dataclasses import dataclass

from epochal._version import __version__
from epochal.cli import progress
from epochal.cli.stream_status import StreamStatus, read_status
from epochal.cli.streams import Stream, open_stream, reach
from epochal.cli.text import counted, listed, paint, print_answer
from epochal.spark_plugins.restore_marks import unfinished_restore
from epochal.txn.driver_facts import Retirement, this_driver
from epochal.txn.errors import EpochalError, Refused
from epochal.txn.liveness import Liveness
from epochal.txn.model import Json
from epochal.txn.retirement import record_retirement, retirement_of

TRIES = 10  # of a command that other starts overtake
OVERTAKEN = "other drivers or commands have started on this stream again and again. Nothing was changed"


@dataclass(frozen=True, slots=True)
class Retired:
    """What was done."""

    retirement: Retirement | None  # None: it was undone, or there was nothing to undo
    generation: int | None  # the one that was claimed; None if there was nothing to do
    leftovers: int = 0


def run(checkpoint: str, journal: str | None, *, why: str | None, undo: bool, as_json: bool) -> int:
    """Retire the stream, or undo it."""
    with progress.task(f"looking at {checkpoint}"):
        stream = open_stream(checkpoint, journal)
        result = take_back(stream) if undo else retire(stream, why or "")
    print_answer(json.dumps(to_json(stream, result), indent=2) if as_json else to_text(stream, result))
    return 0


def retire(stream: Stream, why: str) -> Retired:
    """Record that the stream is over. Refused, with what to do first, while something waits."""
    for _ in range(TRIES):
        status = read_status(stream)
        known = retirement_of(status.latest)
        if known is not None:
            return Retired(known, None, len(status.leftovers))
        check(status)
        retirement = Retirement(why=why, by=whoever(), at=stream.journal.now())
        generation = record_retirement(stream.journal, status.latest, retirement, this_driver(__version__))
        if generation is not None:
            return Retired(retirement, generation, len(status.leftovers))
    raise Refused(OVERTAKEN)


def take_back(stream: Stream) -> Retired:
    """Record that the stream is not retired any more."""
    for _ in range(TRIES):
        latest = stream.journal.read().latest
        known = retirement_of(latest)
        if latest is None or known is None:
            return Retired(None, None)
        if known.moved_to:
            _check_not_there(known)
        generation = record_retirement(stream.journal, latest, None, this_driver(__version__))
        if generation is not None:
            return Retired(None, generation)
    raise Refused(OVERTAKEN)


def _check_not_there(known: Retirement) -> None:
    """Refuse to open a stream again that has moved, if it goes on there. A restore that died may have made nothing."""
    files, place = reach(known.moved_to)
    if files.names(place) and unfinished_restore(files, place.rpartition("/")[0]) is None:
        raise Refused(
            f"the stream has moved to the journal {place} ({known.at} by {known.by}), and goes on there. If it started "
            "here too, both would write the same epochs. Nothing was changed. To bring it back to this file system, "
            "take a savepoint there, restore it into a folder that does not exist yet, and start the query with that "
            "folder as its checkpointLocation. The folder it has left stays closed"
        )


def check(status: StreamStatus) -> None:
    """Refuse while something of the stream waits for somebody: all of it in one error."""
    faults = []
    if status.driver.liveness is Liveness.ALIVE:
        faults.append(f"its driver ({status.driver.name}) is alive. Stop it first")
    if status.held:
        epochs = listed([held.epoch for held in status.held])
        command = status.stream.command("recover")
        faults.append(f"epoch {epochs} is decided but not visible in every sink. Run `{command}` first")
    if status.in_doubt:
        epochs = listed(sorted({record.epoch for record in status.in_doubt}))
        faults.append(
            f"epoch {epochs} is in doubt: staged, but not in Spark's commits/. Start the query once more, which "
            "decides it, and stop it"
        )
    faults += _open(status)
    if faults:
        lines = "".join(f"\n  - {fault}" for fault in faults)
        raise Refused(f"{status.stream.path} cannot be retired. Nothing was changed:{lines}")


def _open(status: StreamStatus) -> list[str]:
    """Rows that are in parts which stay open; what a sink here cannot tell counts as open."""
    roll = status.stream.command("roll")
    if status.open:
        return [f"committed rows are in {counted(len(status.open), 'open part')}. Run `{roll}` first"]
    sinks = status.stream.sinks()
    unknown = []
    for place in sinks.places():
        if not status.view.sink_state(place.sink):
            continue
        try:
            _ = sinks.at(place).rolls
        except (EpochalError, OSError) as fault:
            unknown.append(f"sink {place.sink!r} may have open parts, which cannot be seen from here: {fault}")
    return unknown


def whoever() -> str:
    """The user and the host of this command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{platform.node()}"


def to_json(stream: Stream, result: Retired) -> dict[str, Json]:
    """The outcome as JSON."""
    return {
        "checkpoint": stream.path,
        "retired": None if result.retirement is None else result.retirement.to_json(),
        "fenced_by": result.generation,
        "leftovers": result.leftovers,
    }


def to_text(stream: Stream, result: Retired) -> str:
    """The outcome as text."""
    undo = stream.command("retire", "--undo")
    if result.retirement is None:
        if result.generation is None:
            return "nothing to do: the stream is not retired"
        return paint("not retired any more: the query may be started again", "green")
    if result.generation is None:
        return f"nothing to do: the stream was retired {result.retirement}. `{undo}` takes it back"
    left = ""
    if result.leftovers:
        what = counted(result.leftovers, "staged attempt")
        left = f"\nleft by dead drivers: {what}. `{stream.command('gc', '--yes')}` removes what the rules allow"
    done = paint("retired: `epochal status` exits with 0 from now on, and a start of the query is refused", "green")
    return f"{done}\n`{undo}` takes it back{left}"
