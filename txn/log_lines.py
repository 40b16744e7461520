"""Log lines that a person can read, from events; the facts are in `extra` too. Standard library only.

One line for each sink and epoch at INFO::

    epoch 42 committed to lake: 50,000 rows, 3.1 MB, 0.18 s after Spark's checkpoint

WARNING when a stream is held and when it goes on, ERROR when it stops. The steps in between are at DEBUG.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochSkipped,
    EpochStaged,
    Event,
    PartsOpen,
    PartsRolled,
    RecoveryMeasured,
    StandbyEnded,
    StandbySight,
    StandbyWaits,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
    TakeoverBegun,
    TakeoverEnd,
    TakeoverEnded,
)
from epochal.txn.model import Outcome
from epochal.txn.printable import printable
from epochal.txn.process import Process

log = logging.getLogger("epochal")


FENCED = "It can show no more rows, but Spark may stop this query once if both plan an epoch: start it again then"
ENDS: dict[TakeoverEnd, str] = {
    "ended": "it has ended",
    "gone": "its process is gone",
    "silent": f"it hangs, is suspended or cannot be heard from here. {FENCED}",
    "timeout": f"it has not ended in time. {FENCED}",
}


STANDBY: dict[StandbySight, str] = {
    "": "it takes over when that driver is gone, or silent for {lease:.0f} s",
    "new": "no driver has run the stream yet",
    "gone": "its process is gone",
    "silent": f"it hangs, is suspended or cannot be heard from here. {FENCED}",
    "failed": "its query has failed",
    "lease": "it has lost its lease",
    "ended": "it has ended in order",
    "refused": "it has stopped by an error that any driver would meet; `epochal status` says what to do",
    "fenced": "a command has stopped it",
    "retired": "the stream was retired",
    "stopped": "it was asked to stop",
}


class LogLines:
    """An observer that writes a log line for each event."""

    def __init__(self, logger: logging.Logger = log) -> None:
        self._log = logger

    def __repr__(self) -> str:
        return "epochal's log lines"

    def __call__(self, event: Event) -> None:
        level = level_of(event)
        if self._log.isEnabledFor(level):
            self._log.log(level, "%s", printable(text_of(event)), extra=facts_of(event))


def level_of(event: Event) -> int:
    """The level of an event's line."""
    match event:
        case StreamRefused():
            return logging.ERROR
        case StreamHeld(tries=1) | StreamResumed() | TakeoverBegun() | TakeoverEnded() | StandbyEnded():
            return logging.WARNING
        case RecoveryMeasured(turned=True):
            return logging.WARNING
        case EpochCommitted() | PartsRolled() | StreamHeld() | EpochSkipped() | StreamStarted() | StreamEnded():
            return logging.INFO
        case StandbyWaits():
            return logging.INFO
        case _:
            return logging.DEBUG


def text_of(event: Event) -> str:  # one case for each kind of event
    """The line of an event."""
    match event:
        case StreamStarted():
            doubt = f"; epoch {_listed(event.in_doubt)} in doubt" if event.in_doubt else ""
            return (
                f"stream {event.stream} started: generation {event.generation}, sinks {', '.join(event.sinks)}{doubt}"
            )
        case TakeoverBegun():
            since = f", started {event.since}" if event.since else ""
            return (
                f"stream {event.stream} waits up to {event.timeout:.0f} s for another driver to end: generation "
                f"{event.earlier}, {_process(event)}{since}"
            )
        case TakeoverEnded():
            return (
                f"stream {event.stream} takes over from generation {event.earlier} ({_process(event)}) after "
                f"waiting {event.seconds:.1f} s: {ENDS[event.how]}"
            )
        case StandbyWaits():
            why = STANDBY[event.how].format(lease=event.lease)
            return f"stream {event.stream}: standing by for {_watched(event)}: {why}"
        case StandbyEnded():
            how = STANDBY[event.how]
            if not event.takes_over:
                return f"stream {event.stream}: stands by no longer, after waiting {event.seconds:.1f} s: {how}"
            if event.how == "new":
                return f"stream {event.stream}: nobody runs the stream: this driver starts it"
            return (
                f"stream {event.stream}: the standby takes over from {_watched(event)} after waiting "
                f"{event.seconds:.1f} s: {how}"
            )
        case EpochBegun():
            return f"epoch {event.epoch} begun"
        case EpochSkipped():
            return f"epoch {event.epoch} skipped: it was already written"
        case EpochStaged():
            return (
                f"epoch {event.epoch} staged in {event.sink}: {_amount(event.rows, event.bytes)}, {event.seconds:.2f} s"
            )
        case EpochPrepared():
            return f"epoch {event.epoch} prepared: {event.seconds:.2f} s since its batch arrived"
        case EpochDecided():
            return f"epoch {event.epoch} decided: attempt of generation {event.generation}"
        case EpochCommitted():
            how = "committed to" if event.outcome is Outcome.COMMITTED else "was already visible in"
            after = f", {event.lag:.2f} s after Spark's checkpoint" if event.lag is not None else ""
            return f"epoch {event.epoch} {how} {event.sink}: {_amount(event.rows, event.bytes)}{after}"
        case EpochDone():
            return f"epoch {event.epoch} done: {event.seconds:.2f} s to settle"
        case AttemptAborted():
            return f"epoch {event.epoch}: attempt of generation {event.generation} removed from {event.sink}"
        case StreamHeld():
            lasting = f" (for {event.seconds:.0f} s, {event.tries} tries)" if event.tries > 1 else ""
            return f"stream {event.stream} held: {_failed(event)}: {event.reason}{lasting}"
        case StreamResumed():
            return f"stream {event.stream} resumed: {event.sink} answers again after {event.seconds:.1f} s"
        case PartsRolled():
            return (
                f"parts closed after epoch {event.after} in {event.sink}: {_size(event.bytes)}, {event.seconds:.2f} s"
            )
        case PartsOpen():
            return f"{event.parts} parts open in {event.sink}: {_size(event.bytes)}"
        case RecoveryMeasured():
            holds = "would miss" if event.late else "holds"
            advice = "; `epochal plan-recovery` proposes settings" if event.late else ""
            return (
                f"stream {event.stream} {holds} its recovery objective of {event.objective:.1f} s: a crash now "
                f"would take {event.seconds:.1f} s, extent {event.extent}, {_size(event.bytes)}{advice}"
            )
        case StreamRefused():
            at = f" at epoch {event.epoch}" if event.epoch is not None else ""
            name = f"stream {event.stream}" if event.stream else "stream"
            return f"{name} stopped{at}: {event.error}: {event.reason}"
        case StreamEnded():
            how = (
                "every epoch that Spark has checkpointed is visible"
                if event.settled
                else "not all epochs are known to be visible"
            )
            return f"stream {event.stream} ended: {how}"
        case _:
            return event.kind


def facts_of(event: Event) -> dict[str, Any]:
    """An event's fields for `extra`, and its kind as ``event``."""
    facts: dict[str, Any] = {"event": event.kind}
    for field in fields(event):
        value = getattr(event, field.name)
        facts[field.name] = value.value if isinstance(value, Outcome) else value
    return facts


def _process(event: TakeoverBegun | TakeoverEnded | StandbyWaits | StandbyEnded) -> str:
    return Process(host=event.host, pid=event.pid).name


def _watched(event: StandbyWaits | StandbyEnded) -> str:
    return f"generation {event.generation} ({_process(event)})" if event.generation else "a first driver"


def _failed(event: StreamHeld) -> str:
    match event.step:
        case "stage":
            return f"epoch {event.epoch} cannot be staged in {event.sink}"
        case "commit":
            return f"epoch {event.epoch} cannot be committed to {event.sink}"
        case "abort":
            return f"a lost attempt at epoch {event.epoch} cannot be removed from {event.sink}"
        case "roll":
            return f"parts after epoch {event.epoch} cannot be closed in {event.sink}"
        case "journal":
            at = f" of epoch {event.epoch}" if event.epoch is not None else ""
            return f"the journal or checkpoint{at} cannot be read or written"


def _amount(rows: int, size: int | None) -> str:
    counted = f"{rows:,} row{'s' if rows != 1 else ''}"
    return counted if size is None else f"{counted}, {_size(size)}"


def _size(size: int | None) -> str:
    if size is None:
        return "size unknown"
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def _listed(epochs: tuple[int, ...]) -> str:
    return ", ".join(map(str, epochs))
