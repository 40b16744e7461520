"""Ends a stream where it was, so that it can go on elsewhere: never both.

The old journal gets one more start, made by create-if-absent like every other, which says that the stream has moved and
where to (`epochal.txn.retirement`). It fences a driver that runs; no later start is let in; `epochal status` says it.
What was decided before is then finished, and the attempts at the next epoch are sealed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from epochal._version import __version__
from epochal.spark_plugins.moving import failpoints
from epochal.spark_plugins.moving.origin import Origin
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.claims import same_place
from epochal.txn.driver_facts import Retirement, this_driver
from epochal.txn.errors import EpochalError, Refused
from epochal.txn.files import join
from epochal.txn.journal import Journal, scratch_beside
from epochal.txn.live import read_lives
from epochal.txn.liveness import Liveness, driver_status
from epochal.txn.model import Json
from epochal.txn.process import this_process
from epochal.txn.records import GenerationStarted
from epochal.txn.recovery import Build, Recovery, Sinks
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.rescaling import unfinished
from epochal.txn.retirement import record_retirement, retirement_of, undo_command
from epochal.txn.settler import Retrying
from epochal.txn.takeover import QUIET

TRIES = 10
MOVES = 100  # from one checkpoint to the next
LOOK = 0.1  # seconds between two looks at a driver that is to end


@dataclass(frozen=True, slots=True)
class Closed:
    """A journal that was closed."""

    journal: Journal
    generation: int  # the one that closed it
    waited_in_vain: str = ""  # the driver that has not ended within the time; it is fenced all the same


@dataclass(frozen=True, slots=True)
class Original:
    """Where a stream is now that a savepoint was taken of."""

    live: Origin | None  # None if it is lost, as the user says
    places: tuple[str, ...]  # the journals that it has had since the savepoint


def original(checkpoint: str, journal: str, new: str, *, lost: bool) -> Original:
    """Where a stream is whose savepoint was taken there; it may have moved since. `new` is where it is to go.

    Refused if the one in use cannot be reached, unless the user says that it is `lost`.
    """
    places: list[str] = []
    why = f"it has moved {MOVES} times"
    for _ in range(MOVES):
        try:
            origin = _origin(journal, None if places else checkpoint)
            places.append(journal)
            if not origin.exists():
                why = f"there is no journal in {journal}"
                break
            known = retirement_of(origin.current()[1].read().latest)
        except (OSError, EpochalError) as fault:
            why = str(fault)
            break
        if known is None or not known.moved_to or same_place(known.moved_to, new):
            return Original(origin, tuple(places))
        journal = known.moved_to
    if lost:
        return Original(None, (*places, journal))
    raise Refused(
        f"the original cannot be closed: {why}. If it still runs, or is started again, both would write the same "
        "stream. Nothing was written. Make it reachable from here; or, if you know that it is gone for good, say "
        "--lost-original; or begin another stream with --fork"
    )


def _origin(journal: str, checkpoint: str | None) -> Origin:
    """The stream whose journal in use is there. Without `checkpoint` the journal is in it."""
    parent, _, name = journal.rstrip("/").rpartition("/")
    return Origin.at(checkpoint or parent, join(parent, name.partition("~")[0]))


def close(origin: Origin, moved_to: str, by: str, *, wait: float) -> Closed:
    """Close the journal in use, and wait some seconds for its driver to end. A repeat changes nothing."""
    _, journal = origin.current()
    for _ in range(TRIES):
        view = journal.read()
        latest = view.latest
        assert latest is not None  # `current` has checked it
        known = retirement_of(latest)
        if known is not None and same_place(known.moved_to, moved_to):  # by a restore that died
            return _ended(origin, journal, latest.generation, view.generations.get(latest.generation - 1), wait)
        if known is not None:
            raise Refused(
                f"{origin.path}: the stream was retired {known}. Nothing was written. "
                f"`{undo_command(journal.place)}` takes that back"
            )
        failpoints.hit("before-restore-close")
        retirement = Retirement(why=f"moved to {moved_to}", by=by, at=journal.now(), moved_to=moved_to)
        generation = record_retirement(journal, latest, retirement, this_driver(__version__))
        failpoints.hit("after-restore-close")
        if generation is not None:
            return _ended(origin, journal, generation, latest, wait)
    raise Refused(f"{origin.path}: other drivers or commands start there again and again. Nothing was written")


def _ended(origin: Origin, journal: Journal, generation: int, before: GenerationStarted | None, wait: float) -> Closed:
    in_vain = "" if before is None else _wait(origin, journal, before, wait)
    seal(origin, journal, generation)
    return Closed(journal, generation, in_vain)


def reopen(closed: Closed) -> None:
    """Take it back: the stream goes on where it was. Unless another start has followed."""
    latest = closed.journal.read().latest
    if latest is not None and latest.generation == closed.generation:
        record_retirement(closed.journal, latest, None, this_driver(__version__))


@dataclass(frozen=True, slots=True)
class _Before:
    """A checkpoint as it was before an epoch: one with which Spark has begun to rescale the state."""

    checkpoint: Checkpoint
    epoch: int

    def committed(self) -> int:
        return min(self.checkpoint.committed(), self.epoch - 1)

    def query_id(self) -> str:
        return self.checkpoint.query_id()

    def committed_at(self, epoch: int) -> float | None:
        return self.checkpoint.committed_at(epoch)

    def offsets(self, epoch: int) -> str | None:
        return self.checkpoint.offsets(epoch)

    def sources(self, epoch: int) -> Mapping[str, Json]:
        return self.checkpoint.sources(epoch)

    def watermark(self, epoch: int) -> float | None:
        return self.checkpoint.watermark(epoch)


def finish(origin: Origin, build: Build, timeout: float) -> None:
    """Bring every decided epoch to done. NotSettled if a store does not answer for so long."""
    _, journal = origin.current()
    begun = unfinished(journal.read())  # a rescale that is given up by going back to its savepoint
    is_open = begun is not None and not journal.view.prepared(begun.epoch)
    checkpoint: Checkpoint = _Before(origin.checkpoint, begun.epoch) if begun and is_open else origin.checkpoint
    reports = reporter(stream=stream_name(origin.path))
    recovery = Recovery(
        journals=origin.journal_of,
        checkpoint=checkpoint,
        sinks=sinks_of(origin, journal, build),
        on_commit=lambda _attempt, _sink, _outcome: None,
        reporter=reports,
    )
    Retrying(recovery.settle, reporter=reports, lineage=lambda: recovery.lineage).settle(timeout)


def sinks_of(origin: Origin, journal: Journal, build: Build) -> Sinks:
    """The sinks that a journal describes."""
    return Sinks(journal.read(), build, scratch=scratch_beside(origin.journal_path))


def seal(origin: Origin, journal: Journal, by: int) -> None:
    """Take the names under which older drivers could record that they have staged the next epoch."""
    epoch = origin.checkpoint.committed() + 1
    view = journal.read()
    for number in view.generations:
        if number < by and number not in view.attempts.get(epoch, {}):
            journal.seal(epoch, number, by=by)


def _wait(
    origin: Origin,
    journal: Journal,
    before: GenerationStarted,
    seconds: float,
    *,
    ticks: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait for the driver of the start before to end; its name if it has not.

    As for a takeover, the clock of another machine counts for nothing: its driver is waited for while it writes.
    """
    heard, last = ticks(), -1
    deadline = heard + seconds
    while True:
        sequence, live = read_lives(origin.journal_files, journal.path, place=journal.place).get(
            before.generation, (last, None)
        )
        status, now = driver_status(before, live, time.time()), ticks()
        if sequence != last:
            heard, last = now, sequence
        if status.process.is_same_as(this_process()):
            return ""
        may_write = status.elsewhere and status.liveness in (Liveness.ALIVE, Liveness.SILENT)
        if now - heard >= QUIET if may_write else status.liveness is not Liveness.ALIVE:
            return ""
        if now >= deadline:
            return status.name
        sleep(LOOK)
