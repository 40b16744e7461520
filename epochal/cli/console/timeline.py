"""When each epoch reached which step, from the journal's records and the live file. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from epochal.cli.console.model import EpochLine, Phase, SinkEpochLine
from epochal.cli.stream_status import StreamStatus
from epochal.txn.live import LiveEpoch
from epochal.txn.liveness import Liveness
from epochal.txn.records import Decided, Done, Prepared, Record

SHOWN = 50  # epochs, as many as a live file has
PATIENCE = 5.0  # seconds in which a decided epoch counts as under way
WINDOW = 300.0  # seconds over which rows are counted
NOTHING = LiveEpoch(epoch=-1, generation=0)


@dataclass(slots=True)
class Recorded:
    """When an epoch was decided and done, by the journal."""

    decided: float | None = None
    done: float | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """The times in the journal's records."""

    epochs: Mapping[int, Recorded] = field(default_factory=dict)

    def of(self, epoch: int) -> Recorded:
        return self.epochs.get(epoch, Recorded())


def times_of(records: Iterable[Record]) -> Times:
    """The times of all records that are not folded away."""
    found: dict[int, Recorded] = {}
    for record in records:
        match record:
            case Decided():
                found.setdefault(record.epoch, Recorded()).decided = seconds(record.at)
            case Done():
                found.setdefault(record.epoch, Recorded()).done = seconds(record.at)
    return Times(found)


def seconds(at: str) -> float | None:
    """The time in a record, in seconds since 1970; None for one that has none.

    >>> seconds("2026-11-18T12:00:00.250+00:00"), seconds("")
    (1795003200.25, None)
    """
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None


def is_running(status: StreamStatus) -> bool | None:
    """Whether the driver runs; None if nothing tells."""
    return {Liveness.ALIVE: True, Liveness.UNKNOWN: None}.get(status.driver.liveness, False)


def epochs_of(status: StreamStatus, times: Times) -> tuple[EpochLine, ...]:
    """The last epochs, the newest last."""
    view, live = status.view, status.driver.live
    seen = {line.epoch: line for line in live.epochs} if live is not None else {}
    known = {epoch for epoch in view.attempts if view.prepared(epoch)} | view.decided.keys() | seen.keys()
    phases = _unfinished(status, times)
    return tuple(
        _line(epoch, status, times.of(epoch), seen.get(epoch, NOTHING), phases.get(epoch))
        for epoch in sorted(known)[-SHOWN:]
    )


def is_under_way(status: StreamStatus, decided: float | None) -> bool:
    """Whether a decided epoch is merely being shown, rather than held."""
    live = status.driver.live
    tells = live is not None and live.held is None and not status.driver.is_stuck
    return bool(is_running(status)) and tells and (decided is None or status.now - decided < PATIENCE)


def _unfinished(status: StreamStatus, times: Times) -> dict[int, Phase]:
    phases = {record.epoch: Phase.PREPARED for record in status.in_doubt}
    for item in status.held:
        under_way = is_under_way(status, times.of(item.epoch).decided)
        phases[item.epoch] = Phase.COMMITTING if under_way else Phase.HELD
    return phases


def _shows(status: StreamStatus, epoch: int) -> Mapping[str, str]:
    """What the stores say about an epoch that is not done: sink -> visible, waiting or unknown."""
    return next((held.sinks for held in status.held if held.epoch == epoch), {})


def _line(epoch: int, status: StreamStatus, recorded: Recorded, live: LiveEpoch, phase: Phase | None) -> EpochLine:
    view = status.view
    attempts = view.prepared(epoch)
    record = view.winner(epoch)
    if record is None and attempts and not (live.generation > max(attempts) and is_running(status)):
        record = attempts[max(attempts)]
    elif record is None:
        phase = None  # a newer driver stages it again, whatever older ones have prepared
    if record is not None and live.generation not in (0, record.generation):
        live = NOTHING  # the live file tells of an attempt that did not become the epoch
    if phase is None:
        phase = Phase.VISIBLE if view.is_over(epoch) else _phase_of(live, running=is_running(status))
    done = live.done or recorded.done
    started = view.generations.get(live.generation)
    staging = started.sinks if started is not None and record is None else {}
    names = dict.fromkeys([*(record.sinks if record is not None else staging), *live.sinks])
    shows = _shows(status, epoch)
    return EpochLine(
        epoch=epoch,
        generation=record.generation if record is not None else live.generation or None,
        phase=phase,
        begun=live.begun,
        prepared=live.prepared or (seconds(record.at) if record is not None else None),
        checkpointed=live.checkpointed or recorded.decided,
        done=done,
        generations=tuple(sorted(attempts)),
        sinks={name: _sink(name, record, live, phase, shows.get(name), done) for name in names}
        | _not_staged(status, epoch, live),
    )


def _not_staged(status: StreamStatus, epoch: int, live: LiveEpoch) -> dict[str, SinkEpochLine]:
    """The sink that does not let an epoch be staged."""
    holds = status.driver.live.held if status.driver.live is not None else None
    if holds is None or holds.step != "stage" or holds.epoch != epoch or live is NOTHING or not is_running(status):
        return {}
    return {holds.sink: SinkEpochLine(phase=Phase.HELD)}


def _phase_of(live: LiveEpoch, *, running: bool | None) -> Phase:
    """The phase of an epoch that only the live file has: it was read after the journal."""
    if live.done is not None:
        return Phase.VISIBLE
    if live.checkpointed is not None:
        return Phase.COMMITTING
    if live.prepared is not None:
        return Phase.PREPARED
    return Phase.STAGING if running is not False else Phase.INTERRUPTED


def _sink(
    name: str, record: Prepared | None, live: LiveEpoch, phase: Phase, shows: str | None, done: float | None
) -> SinkEpochLine:
    seen = live.sinks.get(name)
    staged = record.sinks.get(name) if record is not None else None
    match phase, shows:
        case Phase.STAGING, _:
            own = Phase.STAGED if seen is not None and seen.staged is not None else Phase.STAGING
        case _, "visible":
            own = Phase.VISIBLE
        case Phase.HELD, "unknown":
            own = Phase.UNKNOWN
        case _:
            own = phase
    visible = seen.visible if seen is not None else None
    return SinkEpochLine(
        phase=own,
        rows=staged.rows if staged is not None else seen.rows if seen is not None else None,
        bytes=seen.bytes if seen is not None else None,
        staged=seen.staged if seen is not None else None,
        visible=visible if visible is not None else done if own is Phase.VISIBLE else None,
    )


def rows_per_second(epochs: Iterable[EpochLine], sink: str, now: float) -> float | None:
    """The rows that a sink has shown in the last minutes, a second. None if fewer than two epochs tell."""
    shown = [
        (own.visible, own.rows)
        for line in epochs
        if (own := line.sinks.get(sink)) is not None and own.visible is not None and own.rows is not None
    ]
    recent = sorted((at, rows) for at, rows in shown if now - at <= WINDOW)
    if len(recent) < 2:
        return None
    # The first one only marks the beginning: its rows arrived before it.
    span = max(now, recent[-1][0]) - recent[0][0]
    return sum(rows for _, rows in recent[1:]) / span if span > 0 else None


def lag_of(epochs: Iterable[EpochLine], sink: str, now: float) -> float | None:
    """Seconds from Spark's checkpoint until the sink shows it: of the first epoch that it lacks, or the last it has."""
    lag = None
    for line in epochs:
        own = line.sinks.get(sink)
        if own is None or line.checkpointed is None:
            continue
        if own.phase is not Phase.VISIBLE:
            return max(0.0, now - line.checkpointed)
        if own.visible is not None:
            lag = max(0.0, own.visible - line.checkpointed)
    return lag
