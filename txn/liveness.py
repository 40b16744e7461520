"""Whether the driver that a journal names is alive. Pure, but for the look at the processes of this machine.

On the same machine the process table tells, at once. Elsewhere the age of the driver's last live file does: a driver
writes one every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from epochal.txn.live import SILENT, Live, LiveState
from epochal.txn.model import Json
from epochal.txn.process import Process, Running, running
from epochal.txn.records import GenerationStarted


class Liveness(Enum):
    """How a driver stands."""

    ALIVE = "alive"
    SILENT = "silent"  # it has not written for a while, and is not known to run: taken for dead
    DEAD = "dead"  # its process is gone, and it did not say that it had ended
    ENDED = "ended"  # its query has ended
    NONE = "none"  # the newest generation is a command's: its driver was stopped
    UNKNOWN = "unknown"  # it is elsewhere and has written nothing, as older versions did


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus:
    """The driver of the newest generation."""

    liveness: Liveness
    process: Process
    heartbeat: float | None = None  # seconds since its last live file; None if there is none
    live: Live | None = None  # that file

    @property
    def is_stuck(self) -> bool:
        """Whether its process runs but has written nothing for a while."""
        return self.liveness is Liveness.ALIVE and self.heartbeat is not None and self.heartbeat > SILENT

    @property
    def name(self) -> str:
        """Its pid and host, as far as known."""
        return self.process.name


def driver_status(
    latest: GenerationStarted,
    live: Live | None,
    now: float,
    *,
    looked_up: Callable[[Process], Running] = running,
) -> DriverStatus:
    """How the driver of the newest generation stands. `live` is the newest live file, of whichever generation."""
    own = live if live is not None and (live.generation, live.start) == (latest.generation, latest.start) else None
    process = own.process if own is not None else process_of(latest.driver)
    heartbeat = max(0.0, now - own.at) if own is not None else None
    liveness = _liveness(latest, own, heartbeat, process, looked_up)
    return DriverStatus(liveness=liveness, process=process, heartbeat=heartbeat, live=own)


def _liveness(
    latest: GenerationStarted,
    own: Live | None,
    heartbeat: float | None,
    process: Process,
    looked_up: Callable[[Process], Running],
) -> Liveness:
    if latest.driver.get("fence"):
        return Liveness.NONE
    if own is not None and own.state is LiveState.ENDED:
        return Liveness.ENDED
    found = looked_up(process)
    if found is Running.YES:
        return Liveness.ALIVE
    if found is Running.NO:
        return Liveness.DEAD
    if heartbeat is None:
        return Liveness.UNKNOWN
    return Liveness.ALIVE if heartbeat <= SILENT else Liveness.SILENT


def process_of(driver: Mapping[str, Json]) -> Process:
    """The process that a generation's record names."""
    host, pid, started = driver.get("host"), driver.get("pid"), driver.get("started")
    ticks, machine = driver.get("ticks"), driver.get("machine")
    return Process(
        host=host if isinstance(host, str) else None,
        pid=pid if isinstance(pid, int) else None,
        started=float(started) if isinstance(started, int | float) else None,
        ticks=ticks if isinstance(ticks, int) else None,
        machine=machine if isinstance(machine, str) else None,
    )
