"""Whether the driver that a journal names is alive. Pure, but for the look at the processes of this machine.

On the same machine the process table tells, at once: of its Python process, and of Spark's JVM, which may die alone.
Elsewhere the age of the driver's last live file does: a driver writes one every few seconds. That compares two clocks,
which may differ, so it is for people only; a start that takes over watches whether the file changes (`takeover`). A
file from the future says nothing about its age, and its driver is not taken for dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from epochal.txn.durations import lasting
from epochal.txn.live import SILENT, Live, LiveState
from epochal.txn.process import Process, Running, running
from epochal.txn.records import GenerationStarted

AHEAD = 5.0  # seconds that clocks may differ without a word


class Liveness(Enum):
    """How a driver stands."""

    ALIVE = "alive"
    SILENT = "silent"  # it has not written for a while, and is not known to run: taken for dead
    DEAD = "dead"  # its process or its JVM is gone, and it did not say that it had ended
    ENDED = "ended"  # its query has ended
    NONE = "none"  # the newest generation is a command's: its driver was stopped
    UNKNOWN = "unknown"  # it is elsewhere and has written nothing, as older versions did


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus:
    """The driver of the newest generation."""

    liveness: Liveness
    process: Process
    heartbeat: float | None = None  # seconds since its last live file, by our clock; None if there is none
    ahead: float = 0.0  # seconds by which that file is from the future: then its clock differs from ours
    elsewhere: bool = False  # it is not known to be of this machine, so its clock may be another
    live: Live | None = None  # that file
    jvm_is_gone: bool = False  # the JVM has died, and the Python process lives

    @property
    def is_stuck(self) -> bool:
        """Whether its process runs but has written nothing for a while."""
        return self.liveness is Liveness.ALIVE and self.heartbeat is not None and self.heartbeat > SILENT

    @property
    def last_heard(self) -> str:
        """When it last wrote, for people; empty if never.

        >>> DriverStatus(liveness=Liveness.SILENT, process=Process(), heartbeat=31.0, elsewhere=True).last_heard
        "heartbeat 31 s old by this machine's clock; clocks may differ"
        """
        if self.heartbeat is None:
            return ""
        if self.ahead:
            return f"heartbeat {lasting(self.ahead)} in the future by this machine's clock; clocks differ"
        if self.elsewhere:
            return f"heartbeat {lasting(self.heartbeat)} old by this machine's clock; clocks may differ"
        return f"last heard of {lasting(self.heartbeat)} ago"

    @property
    def name(self) -> str:
        """Its pid and host, as far as known."""
        name = self.process.name
        return f"{name}: it lives, but its JVM has ended" if self.jvm_is_gone else name


def driver_status(
    latest: GenerationStarted,
    live: Live | None,
    now: float,
    *,
    looked_up: Callable[[Process], Running] = running,
) -> DriverStatus:
    """How the driver of the newest generation stands. `live` is the newest live file, of whichever generation."""
    own = live if live is not None and (live.generation, live.start) == (latest.generation, latest.start) else None
    process = own.process if own is not None else latest.driver.process
    heartbeat = max(0.0, now - own.at) if own is not None else None
    ahead = own.at - now if own is not None and own.at - now >= AHEAD else 0.0
    found = looked_up(process)
    liveness = _liveness(latest, own, heartbeat, found)
    jvm = own.jvm if own is not None and liveness is Liveness.ALIVE else None
    jvm_is_gone = jvm is not None and looked_up(jvm) is Running.NO
    if jvm_is_gone:  # only the JVM writes commits/N: to the protocol this driver is dead
        liveness = Liveness.DEAD
    return DriverStatus(
        liveness=liveness,
        process=process,
        heartbeat=heartbeat,
        ahead=ahead,
        elsewhere=found is Running.UNKNOWN,
        live=own,
        jvm_is_gone=jvm_is_gone,
    )


def _liveness(
    latest: GenerationStarted,
    own: Live | None,
    heartbeat: float | None,
    found: Running,
) -> Liveness:
    if latest.driver.by_command:
        return Liveness.NONE
    if own is not None and own.state is LiveState.ENDED:
        return Liveness.ENDED
    if found is Running.YES:
        return Liveness.ALIVE
    if found is Running.NO:
        return Liveness.DEAD
    if heartbeat is None:
        return Liveness.UNKNOWN
    return Liveness.ALIVE if heartbeat <= SILENT else Liveness.SILENT
