"""What happens to a stream, as typed events: the base of log lines, metrics and live views.

Events describe; they decide nothing. The protocol emits each event after the step that it describes. An observer that
raises is reported once and gets no further event: it cannot hold or stop a stream.

Observers are called by the thread that made the step, between two steps of the protocol: they must return at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from epochal.txn.model import Outcome

log = logging.getLogger("epochal")

HeldStep: TypeAlias = Literal["stage", "commit", "abort", "roll", "journal"]
# It said that it has ended; its process is gone; it hangs, or is cut off; it did not end in time.
TakeoverEnd: TypeAlias = Literal["ended", "gone", "silent", "timeout"]
# What a standby has seen. It takes over: nobody ran the stream; the driver's process is gone; it was silent for as long
# as the lease; its query failed; it has lost its lease in ZooKeeper. Or, as it was asked to: the query has ended in
# order, failed in a way that any driver would, or was stopped by a command; the stream is over.
StandbySight: TypeAlias = Literal[
    "", "new", "gone", "silent", "failed", "lease", "ended", "refused", "fenced", "retired", "stopped"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a stream. `at` is the wall clock, in seconds since 1970.

    `stream` is the name for people: the query's name, or the folder of its checkpoint. `lineage` identifies the stream;
    it is empty if the query was refused before its checkpoint was read.
    """

    kind: ClassVar[str] = ""
    lineage: str
    stream: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted(Event):
    """A driver has claimed its generation and the targets of its sinks."""

    kind: ClassVar[str] = "started"
    generation: int
    sinks: tuple[str, ...]
    in_doubt: tuple[int, ...] = ()  # epochs that earlier starts have prepared and nobody has decided yet


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverBegun(Event):
    """A driver has claimed its generation and waits for an earlier one to end before Spark starts the query."""

    kind: ClassVar[str] = "waiting"
    generation: int
    earlier: int  # the generation that it waits for
    host: str | None  # of the earlier driver
    pid: int | None
    since: str  # when the earlier driver started, in UTC
    timeout: float  # seconds that it waits at most


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverEnded(Event):
    """The wait for an earlier driver is over. `how` it ended: see `TakeoverEnd`."""

    kind: ClassVar[str] = "takeover"
    generation: int
    earlier: int
    host: str | None
    pid: int | None
    how: TakeoverEnd
    seconds: float  # that it took


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyWaits(Event):
    """A standby waits. `how` is empty while a driver runs the stream; else why it does not take over."""

    kind: ClassVar[str] = "standby"
    generation: int  # of the driver that it watches; 0 if there is none
    host: str | None  # of that driver
    pid: int | None
    lease: float  # seconds
    how: StandbySight


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyEnded(Event):
    """A standby waits no longer: it takes over, or it leaves. `how` it came to that: see `StandbySight`."""

    kind: ClassVar[str] = "relief"
    generation: int
    host: str | None
    pid: int | None
    how: StandbySight
    takes_over: bool
    seconds: float  # that it has waited


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegun(Event):
    """A batch has arrived, and the sinks begin to stage it."""

    kind: ClassVar[str] = "begun"
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSkipped(Event):
    """A batch has arrived whose epoch every sink already has. Spark executes its frame, and nothing is staged."""

    kind: ClassVar[str] = "skipped"
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStaged(Event):
    """A sink has staged the epoch: durable, not visible."""

    kind: ClassVar[str] = "staged"
    epoch: int
    generation: int
    sink: str
    rows: int
    bytes: int | None  # None if the sink does not tell
    seconds: float  # that staging took


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPrepared(Event):
    """Every sink has staged the epoch, and the journal has recorded it. Spark may write commits/N now."""

    kind: ClassVar[str] = "prepared"
    epoch: int
    generation: int
    rows: int  # of the sink that got most
    seconds: float  # since the batch arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDecided(Event):
    """commits/N exists and the journal has recorded which attempt is the epoch.

    Each process that brings the epoch to done emits it once. With ``commit="eager"`` it comes before commits/N.
    """

    kind: ClassVar[str] = "decided"
    epoch: int
    generation: int
    checkpointed: float | None  # when Spark wrote commits/N, wall clock; None if unknown, or if decided before it


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCommitted(Event):
    """A sink shows the epoch. Once for each sink and epoch, also if the commit is repeated because another sink failed.

    ALREADY_COMMITTED: another process, or an earlier start, made it visible.
    """

    kind: ClassVar[str] = "committed"
    epoch: int
    generation: int
    sink: str
    outcome: Outcome
    rows: int
    bytes: int | None
    seconds: float  # that the commit took
    lag: float | None  # seconds since Spark wrote commits/N; None if unknown, or visible before that (commit="eager")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone(Event):
    """Every sink shows the epoch, and the journal has recorded it."""

    kind: ClassVar[str] = "done"
    epoch: int
    generation: int
    rows: int  # of the sink that got most
    seconds: float  # since this process saw that the epoch is decided


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAborted(Event):
    """A sink has removed an attempt that did not become the epoch."""

    kind: ClassVar[str] = "aborted"
    epoch: int
    generation: int
    sink: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeld(Event):
    """A step has failed and is tried again until it succeeds. One event for each failed try."""

    kind: ClassVar[str] = "held"
    epoch: int | None
    sink: str  # "journal" for the journal, or Spark's checkpoint
    step: HeldStep
    reason: str  # the class of the fault and its first line
    tries: int  # that have failed so far, 1 for the first
    seconds: float  # since the first failed try


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed(Event):
    """The step that held the stream has succeeded."""

    kind: ClassVar[str] = "resumed"
    sink: str  # as in the last StreamHeld
    tries: int  # that had failed
    seconds: float  # that the stream was held


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRolled(Event):
    """A sink shows parts that were closed between two epochs."""

    kind: ClassVar[str] = "rolled"
    after: int  # the epoch before
    generation: int
    sink: str
    rows: int | None  # None if the sink does not count them
    bytes: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsOpen(Event):
    """What a sink holds open over epochs now: committed, and visible when its parts are closed."""

    kind: ClassVar[str] = "open"
    sink: str
    parts: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryMeasured(Event):
    """How long a recovery would take if the driver died now, where `recovery_objective` asks for it."""

    kind: ClassVar[str] = "recovery"
    epoch: int  # the last one that Spark had checkpointed
    seconds: float  # predicted: from the start of a process to the end of its first epoch
    objective: float
    extent: int  # versions of Spark's state that it would replay
    rows: int | None  # of Spark's operators; None if not known
    bytes: int  # that it would read
    turned: bool  # whether it began to miss the objective, or to hold it, since the last such event

    @property
    def late(self) -> bool:
        return self.seconds > self.objective


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRefused(Event):
    """The driver stops: what comes next would lose or double rows, or another driver has taken over."""

    kind: ClassVar[str] = "refused"
    epoch: int | None
    error: str  # the class of the error
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Event):
    """The query has ended and this driver does no more. `settled`: it has seen that every decided epoch is visible."""

    kind: ClassVar[str] = "ended"
    settled: bool


Observer: TypeAlias = Callable[[Event], None]


class Observers:
    """Passes events on to observers. `stream` is the name that events carry."""

    def __init__(
        self,
        observers: Iterable[Observer] = (),
        *,
        stream: str = "",
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observers = list(observers)
        self.stream = stream
        self.now = clock
        self.ticks = ticks

    def __bool__(self) -> bool:
        """Whether there is an observer left."""
        return bool(self._observers)

    def emit(self, event: Event) -> None:
        """Pass an event on."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except (Exception, SystemExit) as fault:  # whatever it is, the stream goes on without this observer
                if isinstance(fault, SystemExit) and threading.current_thread() is threading.main_thread():
                    raise  # a signal's handler may have raised it, to end the process
                # Else it would end a thread of ours without a word. By identity: `==` is the observer's own.
                self._observers = [other for other in self._observers if other is not observer]
                log.warning(
                    "an observer failed and gets no further events: %s",
                    fault,
                    exc_info=fault,
                    extra={"observer": repr(observer)},
                )
