"""A process, named so that another process can tell whether it still runs.

A pid alone is not enough: pids are used again, and each container has its own. On Linux a `Process` also says which
table of processes the pid belongs to (`machine`: this boot of this kernel, and the pid namespace) and when the process
started, in ticks since the boot. Ticks do not change when somebody sets the clock.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache

from epochal.txn.json_value import Json

PROC = "/proc"  # tests replace it


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process. What is not known is None: another system than Linux, or a record of an older version."""

    host: str | None = None
    pid: int | None = None
    started: float | None = None  # seconds since 1970, for display
    ticks: int | None = None
    machine: str | None = None

    @property
    def name(self) -> str:
        """Its pid and host for people, as far as known.

        >>> Process(host="spark-7", pid=4711).name
        'pid 4711 on spark-7'
        """
        known = [f"pid {self.pid}" if self.pid is not None else "", self.host or ""]
        return " on ".join(text for text in known if text) or "unknown"

    def is_same_as(self, other: Process) -> bool:
        """Whether both name one process: the same pid in the same table, started at the same tick.

        >>> one = Process(host="spark-7", pid=4711, ticks=90, machine="m")
        >>> one.is_same_as(Process(host="spark-7", pid=4711, ticks=91, machine="m"))  # the pid was used again
        False
        """
        return self._identity == other._identity

    def to_json(self) -> dict[str, Json]:
        """What is known, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Process:
        """The process in an object, which may hold other things too. What has another type is taken for not known.

        >>> Process.from_json({"host": "spark-7", "pid": "4711", "epochal": "0.1.0"})
        Process(host='spark-7', pid=None, started=None, ticks=None, machine=None)
        """
        host, pid, started = value.get("host"), value.get("pid"), value.get("started")
        ticks, machine = value.get("ticks"), value.get("machine")
        return Process(
            host=host if isinstance(host, str) else None,
            pid=pid if isinstance(pid, int) else None,
            started=float(started) if isinstance(started, int | float) else None,
            ticks=ticks if isinstance(ticks, int) else None,
            machine=machine if isinstance(machine, str) else None,
        )

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.pid, self.ticks, self.machine, self.host


class Running(Enum):
    """Whether a process runs."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"  # it is, or may be, on another machine, or this system does not tell


def this_process() -> Process:
    """This process."""
    return _this_process(os.getpid(), PROC)


@cache
def _this_process(pid: int, proc: str) -> Process:  # noqa: ARG001  # for the cache
    return process_here(pid)


os.register_at_fork(after_in_child=_this_process.cache_clear)  # its pid may be one that an ancestor had


def process_here(pid: int) -> Process:
    """A process of this machine."""
    found = _stat(pid)
    ticks = found[1] if found is not None else None
    return Process(host=platform.node(), pid=pid, started=_started(ticks), ticks=ticks, machine=this_machine())


def this_machine() -> str | None:
    """The table of processes that this process sees; None if unknown."""
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink(f'{PROC}/self/ns/pid')}"
    except OSError:
        return None


def running(process: Process) -> Running:
    """Whether a process runs on this machine; UNKNOWN if it is not known to be of this machine."""
    if process.pid is None or not _is_here(process):
        return Running.UNKNOWN
    found = _stat(process.pid)
    if found is None:
        return Running.NO if not _takes_signals(process.pid) else Running.UNKNOWN
    state, ticks = found
    if state in "ZX":  # it has ended, and its parent has not noticed yet
        return Running.NO
    if process.ticks is not None:
        return Running.YES if ticks == process.ticks else Running.NO
    return Running.UNKNOWN  # there is a process with the pid; nothing says that it is the same one


def _is_here(process: Process) -> bool:
    if process.machine is not None:
        return process.machine == this_machine()
    return process.host is not None and process.host == platform.node()


def _takes_signals(pid: int) -> bool:
    """Whether there is a process with this pid, perhaps of another user and hidden in /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _stat(pid: int) -> tuple[str, int] | None:
    """The state of a process and when it started, in ticks since the boot."""
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _started(ticks: int | None) -> float | None:
    """The time that a process started, in seconds since 1970."""
    if ticks is None:
        return None
    try:
        with open(f"{PROC}/stat", encoding="ascii") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
        return round(boot + ticks / os.sysconf("SC_CLK_TCK"), 2)
    except (OSError, StopIteration, ValueError, IndexError):
        return None
