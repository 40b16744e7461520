"""What a driver is doing, folded from its events (`live`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from epochal.txn.events import (
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochSkipped,
    EpochStaged,
    Event,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
    TakeoverBegun,
    TakeoverEnded,
)
from epochal.txn.live import Live, LiveEpoch, LiveHeld, LiveRefusal, LiveState, SinkEpoch
from epochal.txn.process import Process

EPOCHS = 50  # the number of epochs that a live file has
REASON_LENGTH = 1000


def after(live: Live, event: Event) -> Live:
    """The state after an event."""
    live = _with_facts(live, event)
    live = replace(live, state=_state(live))
    return replace(live, sink=_sink(live))


def _with_facts(live: Live, event: Event) -> Live:
    match event:
        case StreamStarted():
            return replace(live, generation=event.generation, sinks=event.sinks, stream=event.stream)
        case TakeoverBegun():
            process = Process(host=event.host, pid=event.pid)
            return replace(live, waits_for=f"generation {event.earlier}, {process.name}")
        case TakeoverEnded():
            return replace(live, waits_for=None)
        case EpochBegun():
            begun = LiveEpoch(epoch=event.epoch, generation=event.generation, begun=event.at)
            return replace(_with(live, begun), epoch=event.epoch)
        case EpochStaged():
            return _in_sink(live, event.epoch, event.sink, staged=event.at, rows=event.rows, bytes=event.bytes)
        case EpochSkipped():
            return replace(live, epoch=event.epoch)
        case EpochPrepared():
            return _with(live, replace(_of(live, event.epoch), prepared=event.at, generation=event.generation))
        case EpochDecided():
            known = _of(live, event.epoch)
            if known.generation != event.generation:  # an attempt of another generation has won
                known = LiveEpoch(epoch=event.epoch, generation=event.generation)
            return _with(live, replace(known, checkpointed=event.checkpointed))
        case EpochCommitted():
            known_bytes = {} if event.bytes is None else {"bytes": event.bytes}
            return _in_sink(live, event.epoch, event.sink, visible=event.at, rows=event.rows, **known_bytes)
        case EpochDone():
            return _with(live, replace(_of(live, event.epoch), generation=event.generation, done=event.at))
        case StreamHeld():
            reason, since = event.reason[:REASON_LENGTH], event.at - event.seconds
            held = LiveHeld(sink=event.sink, step=event.step, reason=reason, since=since, epoch=event.epoch)
            return replace(live, held=held)
        case StreamResumed():
            return replace(live, held=None)
        case StreamRefused():
            reason = event.reason[:REASON_LENGTH]
            refused = LiveRefusal(error=event.error, reason=reason, at=event.at, epoch=event.epoch)
            return replace(live, refused=live.refused or refused)  # what follows from the first error says less
        case StreamEnded():
            return replace(live, settled=event.settled)
    return live  # what is rolled or removed between epochs is not shown


def _state(live: Live) -> LiveState:
    if live.settled is not None:
        return LiveState.ENDED
    if live.waits_for is not None:
        return LiveState.WAITING
    if live.held is not None:
        return LiveState.HELD
    current = live.last(live.epoch)
    staging = current is not None and current.begun is not None and current.prepared is None and current.done is None
    return LiveState.STAGING if staging else LiveState.IDLE


def _sink(live: Live) -> str | None:
    """The sink that the driver waits for; while it stages, the first one that has not staged the epoch yet."""
    if live.state is LiveState.HELD and live.held is not None:
        return live.held.sink
    current = live.last(live.epoch)
    if live.state is not LiveState.STAGING or current is None:
        return None
    return next((sink for sink in live.sinks if sink not in current.sinks), None)


def with_earlier(live: Live, earlier: tuple[LiveEpoch, ...]) -> Live:
    """With epochs of the driver before, so that a restart does not empty a dashboard."""
    own = {epoch.epoch for epoch in live.epochs}
    return _trimmed(live, [*(epoch for epoch in earlier if epoch.epoch not in own), *live.epochs])


def _of(live: Live, epoch: int) -> LiveEpoch:
    return live.last(epoch) or LiveEpoch(epoch=epoch, generation=live.generation)


def _with(live: Live, changed: LiveEpoch) -> Live:
    return _trimmed(live, [*(e for e in live.epochs if e.epoch != changed.epoch), changed])


def _trimmed(live: Live, epochs: list[LiveEpoch]) -> Live:
    return replace(live, epochs=tuple(sorted(epochs, key=lambda e: e.epoch)[-EPOCHS:]))


def _in_sink(live: Live, epoch: int, sink: str, **facts: Any) -> Live:
    known = _of(live, epoch)
    changed = replace(known.sinks.get(sink, SinkEpoch()), **facts)
    return _with(live, replace(known, sinks={**known.sinks, sink: changed}))


class LiveObserver:
    """Collects the events of one driver. They are folded when the state is asked for, not when they happen."""

    def __init__(self) -> None:
        self.on_event: Callable[[], None] = lambda: None
        # Events come from the batch's thread and from the settler's. The limit is met only if nobody asks for minutes.
        self._events: deque[Event] = deque(maxlen=10_000)

    def __repr__(self) -> str:
        return "epochal's live file"

    def __call__(self, event: Event) -> None:
        self._events.append(event)
        self.on_event()

    def folded(self, live: Live) -> Live:
        """The state after the events since the last call."""
        while self._events:
            live = after(live, self._events.popleft())
        return live
