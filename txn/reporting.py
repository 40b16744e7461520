"""Turns steps of the protocol into events.

The protocol calls one method after each of its steps. Everything that only events need is here: clocks, what was
reported before, and counts from the journal. No method raises, and none changes what the protocol does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from epochal.txn.errors import CommitFailed, EpochalError, NotSettled, StoreAway
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
    HeldStep,
    Observer,
    Observers,
    PartsOpen,
    PartsRolled,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
)
from epochal.txn.log_lines import LogLines
from epochal.txn.model import Attempt, Outcome, Staged
from epochal.txn.participant import Participant
from epochal.txn.records import Roll
from epochal.txn.view import View

log = logging.getLogger("epochal")

JOURNAL = "journal"  # instead of a sink, in StreamHeld
GENERIC = ("checkpoint", "checkpoints", "_checkpoint", "_checkpoints", "cp")  # folders that name no stream
LONGEST_REASON = 1000  # characters

P = ParamSpec("P")


def stream_name(checkpoint: str, query: str | None = None) -> str:
    """The name of a stream for people: the query's name, or the folder of its checkpoint.

    >>> stream_name("hdfs://host/checkpoints/orders/"), stream_name("/data/orders/_checkpoint")
    ('orders', 'orders')
    >>> stream_name("/data/cp/7", query="orders")
    'orders'
    """
    if query:
        return query
    folders = [folder for folder in checkpoint.rsplit("://", maxsplit=1)[-1].split("/") if folder]
    named = [folder for folder in folders if folder.lower() not in GENERIC]
    return (named or folders or [checkpoint])[-1]


def _never_raises(method: Callable[Concatenate[Reporter, P], None]) -> Callable[Concatenate[Reporter, P], None]:
    """A method whose error is logged once and does not reach the protocol."""

    @wraps(method)
    def guarded(self: Reporter, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self.observers:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as fault:  # whatever it is, the stream goes on
            level = logging.DEBUG if method.__name__ in self._faulty else logging.WARNING
            self._faulty.add(method.__name__)
            log.log(level, "an event could not be reported: %s", fault, exc_info=fault)

    return guarded


class Reporter:
    """Reports the steps of one stream in one process. Not safe for concurrent use: the settler's lock guards it."""

    def __init__(self, observers: Observers) -> None:
        self.observers = observers
        self._faulty: set[str] = set()
        self._step = 0.0  # when the step began that is under way
        self._begun: dict[int, float] = {}  # epoch -> when its batch arrived
        self._decided: dict[int, tuple[float, float | None]] = {}  # epoch -> when seen here, when commits/N was written
        self._shown: set[tuple[int, str]] = set()  # epoch, sink: reported as committed
        self._rolled: set[tuple[int, int, str]] = set()  # generation, number, sink: reported as rolled
        self._aborted: set[tuple[Attempt, str]] = set()
        self._opened: dict[str, tuple[int, int]] = {}  # sink -> its open parts and their bytes, as reported last
        self._held: StreamHeld | None = None

    def __repr__(self) -> str:
        return "reporter"

    def emit(self, kind: Callable[..., Event], lineage: str, **facts: Any) -> None:
        """Pass an event on."""
        self.observers.emit(kind(lineage=lineage, stream=self.observers.stream, at=self.observers.now(), **facts))

    @_never_raises
    def started(self, lineage: str, generation: int, sinks: Iterable[str], before: View) -> None:
        in_doubt = tuple(e for e in before.waiting() if e not in before.decided and before.prepared(e))
        self.emit(StreamStarted, lineage, generation=generation, sinks=tuple(sinks), in_doubt=in_doubt)

    @_never_raises
    def begun(self, attempt: Attempt) -> None:
        """A batch has arrived. A batch that is tried again has begun before."""
        if attempt.epoch not in self._begun:
            self._begun = {attempt.epoch: self.observers.ticks()}
            self.emit(EpochBegun, attempt.lineage, epoch=attempt.epoch, generation=attempt.generation)

    @_never_raises
    def skipped(self, lineage: str, epoch: int, generation: int) -> None:
        self.emit(EpochSkipped, lineage, epoch=epoch, generation=generation)

    @_never_raises
    def step_begins(self) -> None:
        """The next `staged`, `committed` or `rolled` measures its time from here."""
        self._step = self.observers.ticks()

    @_never_raises
    def staged(self, attempt: Attempt, sink: str, part: Staged) -> None:
        self._aborted.discard((attempt, sink))
        self.emit(
            EpochStaged,
            attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            sink=sink,
            rows=part.rows,
            bytes=part.bytes,
            seconds=self._since(self._step),
        )

    @_never_raises
    def prepared(self, lineage: str, epoch: int, generation: int, view: View) -> None:
        record = view.prepared(epoch).get(generation)
        rows = _most_rows(record.sinks) if record is not None else 0
        began = self._begun.get(epoch, self.observers.ticks())
        self.emit(EpochPrepared, lineage, epoch=epoch, generation=generation, rows=rows, seconds=self._since(began))

    @_never_raises
    def decided(
        self, lineage: str, epoch: int, generation: int, checkpointed: Callable[[int], float | None] | None
    ) -> None:
        """The journal has recorded the winner. `checkpointed` returns when Spark wrote commits/N; None before that."""
        if epoch in self._decided:
            return
        at = None
        if checkpointed is not None:
            try:
                at = checkpointed(epoch)
            except OSError as fault:
                log.debug("age of commits/%s not known", epoch, extra={"epoch": epoch, "error": repr(fault)})
        self._decided[epoch] = self.observers.ticks(), at
        self.emit(EpochDecided, lineage, epoch=epoch, generation=generation, checkpointed=at)

    @_never_raises
    def committed(self, attempt: Attempt, sink: str, outcome: Outcome, view: View) -> None:
        if (attempt.epoch, sink) in self._shown:
            return  # the commit was repeated because another sink failed
        self._shown.add((attempt.epoch, sink))
        part = _part(view, attempt, sink)
        _, checkpointed = self._decided.get(attempt.epoch, (0.0, None))
        self.emit(
            EpochCommitted,
            attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            sink=sink,
            outcome=outcome,
            rows=part.rows if part is not None else 0,
            bytes=part.bytes if part is not None else None,
            seconds=self._since(self._step),
            # Two clocks: a NameNode may be ahead of this machine.
            lag=None if checkpointed is None else max(0.0, self.observers.now() - checkpointed),
        )

    @_never_raises
    def done(self, lineage: str, epoch: int, generation: int, view: View) -> None:
        winner = view.winner(epoch)
        saw, _ = self._decided.get(epoch, (self.observers.ticks(), None))
        self._decided = {e: seen for e, seen in self._decided.items() if e > epoch}
        self._shown = {shown for shown in self._shown if shown[0] > epoch}
        self._aborted = {aborted for aborted in self._aborted if aborted[0].epoch > epoch}
        self.emit(
            EpochDone,
            lineage,
            epoch=epoch,
            generation=generation,
            rows=_most_rows(winner.sinks) if winner is not None else 0,
            seconds=self._since(saw),
        )

    @_never_raises
    def aborted(self, attempt: Attempt, sink: str) -> None:
        if (attempt, sink) not in self._aborted:
            self._aborted.add((attempt, sink))
            self.emit(AttemptAborted, attempt.lineage, epoch=attempt.epoch, generation=attempt.generation, sink=sink)

    @_never_raises
    def rolled(self, lineage: str, record: Roll, sink: str, outcome: Outcome) -> None:
        key = (record.generation, record.number, sink)
        if key in self._rolled:
            return
        self._rolled = {one for one in self._rolled if one[0] == record.generation and one[1] >= record.number - 1}
        self._rolled.add(key)
        if outcome is Outcome.ALREADY_COMMITTED:
            return  # each process repeats every pending roll
        part = record.sinks[sink]
        self.emit(
            PartsRolled,
            lineage,
            after=record.after,
            generation=record.generation,
            sink=sink,
            rows=part.rows or None,
            bytes=part.bytes,
            seconds=self._since(self._step),
        )

    @_never_raises
    def opened(self, lineage: str, view: View, participants: Iterable[Participant[Any]]) -> None:
        """What sinks hold open now, if it has changed."""
        for participant in participants:
            if participant.rolls is None:
                continue
            state = view.sink_state(participant.name)
            now = participant.rolls.open_size(state) if state else (0, 0)
            if self._opened.get(participant.name, (0, 0)) != now:
                self._opened[participant.name] = now
                self.emit(PartsOpen, lineage, sink=participant.name, parts=now[0], bytes=now[1])

    @_never_raises
    def held(self, lineage: str, failed: CommitFailed | OSError, epoch: int | None, seconds: float) -> None:
        """A step has failed and will be tried again."""
        sink, step, cause = held_facts(failed)
        tries = 1 if self._held is None else self._held.tries + 1
        self._held = StreamHeld(
            lineage=lineage,
            stream=self.observers.stream,
            at=self.observers.now(),
            epoch=failed.epoch if isinstance(failed, CommitFailed) else epoch,
            sink=sink,
            step=step,
            reason=one_line(cause),
            tries=tries,
            seconds=seconds,
        )
        self.observers.emit(self._held)

    @_never_raises
    def resumed(self, lineage: str, seconds: float) -> None:
        held, self._held = self._held, None
        if held is not None:
            self.emit(StreamResumed, lineage, sink=held.sink, tries=held.tries, seconds=seconds)

    @_never_raises
    def refused(self, lineage: str, fault: EpochalError, epoch: int | None) -> None:
        """The driver stops. An error may pass several layers that report it: only the first counts."""
        if fault.is_reported or isinstance(fault, NotSettled):
            return
        fault.is_reported = True
        self.emit(StreamRefused, lineage, epoch=epoch, error=type(fault).__name__, reason=str(fault))

    @_never_raises
    def ended(self, lineage: str, *, settled: bool) -> None:
        self.emit(StreamEnded, lineage, settled=settled)

    def _since(self, ticks: float) -> float:
        return max(0.0, self.observers.ticks() - ticks)


SILENT = Reporter(Observers())


def reporter(observers: Iterable[Observer] = (), *, stream: str = "") -> Reporter:
    """A reporter that writes log lines and passes events on to observers."""
    return Reporter(Observers([LogLines(), *observers], stream=stream))


def held_facts(failed: CommitFailed | OSError) -> tuple[str, HeldStep, Exception]:
    """Which sink failed, in which step, and why."""
    if isinstance(failed, CommitFailed):
        return failed.sink, failed.step, failed.cause
    if isinstance(failed, StoreAway) and failed.sink:
        return failed.sink, "stage", failed
    return JOURNAL, "journal", failed


def one_line(fault: Exception) -> str:
    r"""An error as one line: its class and its text, without the lines of a trace in Java.

    >>> one_line(ConnectionError("no route to host\n\tat Client.java:12\ntry again"))
    'ConnectionError: no route to host try again'
    """
    lines = (line.strip() for line in str(fault).splitlines())
    text = " ".join([f"{type(fault).__name__}:", *(line for line in lines if line and not line.startswith("at "))])
    text = text.removesuffix(":")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _most_rows(sinks: Mapping[str, Staged]) -> int:
    return max((part.rows for part in sinks.values()), default=0)


def _part(view: View, attempt: Attempt, sink: str) -> Staged | None:
    record = view.prepared(attempt.epoch).get(attempt.generation)
    return record.sinks.get(sink) if record is not None else None
