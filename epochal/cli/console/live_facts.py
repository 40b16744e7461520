"""What a running driver tells of itself in its live file, in the types of the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STALE = 20.0  # seconds: a driver writes its live file every 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSink:
    """One epoch in one sink."""

    staged: float | None = None
    visible: float | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEpoch:
    """One epoch, as its driver has seen it."""

    epoch: int
    generation: int
    begun: float | None = None
    prepared: float | None = None
    checkpointed: float | None = None
    done: float | None = None
    sinks: Mapping[str, LiveSink] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHeld:
    """Why the stream is held."""

    sink: str
    reason: str
    since: float
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFacts:
    """A driver's live file. `running`: its process is alive, or its heartbeat is fresh; None if nothing tells."""

    generation: int
    at: float
    state: str
    running: bool | None
    epoch: int | None = None
    held: LiveHeld | None = None
    epochs: tuple[LiveEpoch, ...] = ()
