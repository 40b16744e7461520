"""What the console shows of a stream, as plain typed values. Times are seconds since 1970.

A value that is not known is None: a journal of an older version and a stream without a live file know fewer times.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from epochal.txn.unpublished import Unpublished

JsonObject: TypeAlias = dict[str, Any]


class Level(StrEnum):
    """How much something needs attention."""

    OK = "ok"
    INFO = "info"  # nothing to do, but good to know
    WARNING = "warning"
    ERROR = "error"


class Phase(StrEnum):
    """How far an epoch has come, in the stream or in one sink."""

    STAGING = "staging"  # the sinks write it; nothing is recorded yet
    STAGED = "staged"  # this sink has staged it, others have not
    INTERRUPTED = "interrupted"  # the driver stopped while the sinks staged it; the next start replays it
    PREPARED = "prepared"  # every sink has staged it; Spark's commits/N decides
    COMMITTING = "committing"  # decided; the sinks are showing it
    HELD = "held"  # a store does not take it
    UNKNOWN = "unknown"  # decided; the store does not say whether it shows it
    VISIBLE = "visible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """How the stream stands, in the words of `epochal status`."""

    level: Level
    standing: str  # running, held, stopped, failed, dead, unknown, refused or retired
    text: str
    command: str | None  # the one to run, if one helps


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What has happened, and what to do about it. `command` can be pasted into a shell."""

    level: Level
    what: str
    do: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLine:
    """The process that drives the stream, or the last one that did."""

    generation: int
    host: str
    pid: int | None
    version: str
    started: float | None
    running: bool | None  # None: nothing tells
    liveness: str  # alive, silent, dead, ended, none (a command stopped it) or unknown
    seen: float | None  # its last heartbeat
    doing: str  # idle, staging, held or ended; empty if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEpochLine:
    """One epoch in one sink."""

    phase: Phase
    rows: int | None = None
    bytes: int | None = None
    staged: float | None = None
    visible: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLine:
    """One epoch: when it reached which step. `generations` are all that have prepared it, the shown one last."""

    epoch: int
    generation: int | None
    phase: Phase
    begun: float | None = None
    prepared: float | None = None
    checkpointed: float | None = None  # Spark wrote commits/N; without a live file, the time of the decision
    done: float | None = None
    generations: tuple[int, ...] = ()
    sinks: dict[str, SinkEpochLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLine:
    """One sink in one place."""

    name: str
    kind: str
    target: str
    current: bool
    last: int | None  # the last epoch that it shows
    behind: int  # how many epochs that Spark has checkpointed it does not show
    lag: float | None  # seconds: how long it has been behind, or how long the last epoch took to appear
    rows_per_second: float | None
    held: str  # why it is held; empty if it is not
    since: float | None  # when the first try failed
    error: str  # why the store could not be asked; empty if it answers
    available: bool  # False: this process cannot ask it, whatever the state of the store


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """An epoch that is prepared and waits for Spark's commits/N."""

    epoch: int
    attempts: tuple[tuple[int, float | None], ...]  # generation, and when it was prepared
    rows: dict[str, int]
    advice: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """An epoch that is decided and that not every sink shows, or that a store does not let be staged."""

    epoch: int
    generation: int | None
    sinks: dict[str, str]  # sink -> visible, waiting or unknown
    cause: str
    since: float | None
    advice: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """Committed rows that appear when their part rolls."""

    sink: str
    bucket: str
    bytes: int
    rows: int | None
    pieces: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverLine:
    """Staged data that a store still has."""

    sink: str
    epoch: int
    generation: int
    state: str
    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLine:
    """A stateful operator of the query."""

    operator: int
    name: str
    provider: str
    partitions: int
    rows: int | None
    rows_exact: bool
    bytes: int
    extent: int  # versions that a recovery replays
    replay_rows: int | None
    replay_bytes: int
    skew: float | None
    missing: int  # versions that a recovery needs and that are not there


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLine:
    """What Spark's operators keep, and how long a recovery would take, in seconds."""

    operators: tuple[OperatorLine, ...]
    recovery: float
    measured: bool  # by what this machine was measured to need; else by guesses


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """The journal's size."""

    path: str
    records: int
    bytes: int
    folded_through: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSnapshot:
    """One stream at one moment."""

    checkpoint: str
    at: float
    headline: Headline
    lineage: str
    commit: str  # checkpoint or eager
    base: int
    committed: int | None
    done: int | None
    driver: DriverLine
    sinks: tuple[SinkLine, ...]
    epochs: tuple[EpochLine, ...]  # the newest last
    in_doubt: tuple[InDoubt, ...]
    held: tuple[HeldLine, ...]
    unpublished: Unpublished | None  # the sum of all open parts
    uncounted: tuple[str, ...]  # sinks that may have more open parts, which could not be looked up
    open: tuple[OpenPart, ...]  # the oldest first, at most `build.SHOWN`
    open_count: int
    leftovers: tuple[LeftoverLine, ...]  # at most `build.SHOWN`
    leftover_count: int
    journal: JournalLine
    spark_state: StateLine | None  # None if the query keeps none
    refusal: Advice | None  # a start would be refused now
    notes: tuple[str, ...]
    live: bool  # there is a live file of the newest driver


def to_json(snapshot: StreamSnapshot) -> JsonObject:
    """The snapshot as JSON."""
    return asdict(snapshot)
