"""What happens to a stream, as typed events: the base of log lines, metrics and live views.

Events describe; they decide nothing. The protocol emits each event after the step that it describes. An observer that
raises is reported once and gets no further event: it cannot hold or stop a stream.

Observers are called by the thread that made the step, between two steps of the protocol: they must return at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from epochal.txn.model import Outcome

log = logging.getLogger("epochal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a stream. `at` is the wall clock, in seconds since 1970."""

    kind: ClassVar[str] = ""
    lineage: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted(Event):
    """A driver has claimed its generation and the targets of its sinks."""

    kind: ClassVar[str] = "started"
    generation: int
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegun(Event):
    """A batch has arrived, and the sinks begin to stage it."""

    kind: ClassVar[str] = "begun"
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStaged(Event):
    """A sink has staged the epoch: durable, not visible."""

    kind: ClassVar[str] = "staged"
    epoch: int
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
    rows: int
    seconds: float  # since the batch arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDecided(Event):
    """commits/N exists and the journal has recorded which attempt is the epoch."""

    kind: ClassVar[str] = "decided"
    epoch: int
    generation: int
    checkpointed: float | None  # when Spark wrote commits/N, wall clock; None if unknown, or if decided before it


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCommitted(Event):
    """A sink shows the epoch."""

    kind: ClassVar[str] = "committed"
    epoch: int
    generation: int
    sink: str
    outcome: Outcome
    rows: int
    bytes: int | None
    seconds: float  # that the commit took
    lag: float | None  # seconds since Spark wrote commits/N; None if unknown, or with commit="eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone(Event):
    """Every sink shows the epoch, and the journal has recorded it."""

    kind: ClassVar[str] = "done"
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAborted(Event):
    """A sink has removed an attempt that did not become the epoch."""

    kind: ClassVar[str] = "aborted"
    epoch: int
    generation: int
    sink: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeld(Event):
    """A store or the journal does not answer. epochal tries again; one event for each failed try."""

    kind: ClassVar[str] = "held"
    epoch: int | None
    sink: str  # "journal" for the journal itself
    reason: str
    seconds: float  # since the first failed try


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed(Event):
    """The store answers again."""

    kind: ClassVar[str] = "resumed"
    seconds: float  # that the stream was held


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRolled(Event):
    """A sink shows parts that were closed between two epochs."""

    kind: ClassVar[str] = "rolled"
    after: int  # the epoch before
    sink: str
    rows: int
    bytes: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRefused(Event):
    """The driver stops: what comes next would lose or double rows, or another driver has taken over."""

    kind: ClassVar[str] = "refused"
    epoch: int | None
    error: str  # the class of the error
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Event):
    """The query has ended and this driver does no more. `settled`: every decided epoch is visible."""

    kind: ClassVar[str] = "ended"
    settled: bool


Observer: TypeAlias = Callable[[Event], None]


class Observers:
    """Passes events on to observers."""

    def __init__(
        self,
        observers: Iterable[Observer] = (),
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observers = list(observers)
        self.now = clock
        self.ticks = ticks

    def emit(self, event: Event) -> None:
        """Pass an event on."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception as fault:  # whatever it is, the stream goes on without this observer
                self._observers.remove(observer)
                log.warning(
                    "an observer failed and gets no further events: %s",
                    fault,
                    exc_info=fault,
                    extra={"observer": repr(observer)},
                )
