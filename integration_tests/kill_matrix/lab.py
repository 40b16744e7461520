"""Where cases live, and how a driver is started, killed, held and let go. It forks and uses no threads.

A live case is a folder in ``live/`` that the reader watches. Everything a driver knows is in that
folder, so a copy of it is a copy of the world.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from epochal.testing import ConcurrentUpdate
from epochal.testing.processes import fork
from epochal.txn import failpoints
from epochal.txn.errors import FencedOut
from epochal.txn.failpoints import Armed, Failpoint
from integration_tests.kill_matrix.broken import BROKEN
from integration_tests.kill_matrix.cases import AGED, CHANGE, Point, Stream
from integration_tests.kill_matrix.changes import Changes
from integration_tests.kill_matrix.driver import drive
from integration_tests.kill_matrix.reader import name_of

DEADLINE = 60  # seconds; a driver needs a few hundredths of one


class Ending(IntEnum):
    """How a driver ended: its exit code."""

    DONE = 0
    FAILED = 1
    FENCED_OUT = 3
    CONCURRENT_UPDATE = 4
    KILLED = -signal.SIGKILL
    STUCK = -signal.SIGALRM


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that was started, and the gates at which it will be held."""

    process: int
    gates: tuple[Path, ...]


class Lab:
    """A root folder with everything in it; one process uses it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root / "live"
        self._number = 0
        self._aged: dict[Stream, Path] = {}
        for folder in (self.live, root / "kept", root / "made", root / "gates"):
            folder.mkdir(parents=True, exist_ok=True)
        self._log = root / "driver.log"
        self._counts = root / "counts"

    # Cases.

    def new(self, stream: Stream) -> Path:
        """A case before its first driver."""
        if stream.start == "aged":
            if stream not in self._aged:
                self._aged[stream] = self._grown(stream)
            return self.copy(self._aged[stream], stream)
        made = self.root / "made" / "new"
        made.mkdir()
        return self._enliven(made, stream)

    def copy(self, case: Path, stream: Stream) -> Path:
        """Another live case in the same state."""
        made = self.root / "made" / "copy"
        copy_state(case, made)
        return self._enliven(made, stream)

    def keep(self, case: Path) -> Path:
        """Take a case out of the reader's sight, to be copied."""
        return case.rename(self.root / "kept" / case.name)

    def end(self, case: Path) -> None:
        """Take a case out of the reader's sight and remove it."""
        shutil.rmtree(self.keep(case) if case.parent == self.live else case)

    # Drivers.

    def start(
        self,
        case: Path,
        stream: Stream,
        *,
        kill: Point | None = None,
        holds: Sequence[Point] = (),
        count: bool = False,
        jitter: int | None = None,
        broken: str = "",
    ) -> Driver:
        """Start a driver on a case."""
        self._number += 1
        gates = [f"{self._number}.{number}" for number in range(len(holds))]

        def life() -> None:
            os.chdir(case)
            BROKEN[broken]()
            changes = Changes(kill.hit if kill and kill.name == CHANGE else 0)
            if count or (kill and kill.name == CHANGE and jitter is None):
                changes.install()
            points = [Failpoint(p.name, "pause", p.hit, f"../../gates/{g}") for p, g in zip(holds, gates, strict=True)]
            if kill:
                points.append(Failpoint(kill.name, "kill", kill.hit))
            if points or count:
                failpoints.hit = Armed(tuple(points), str(self._counts) if count else "")
            if jitter is not None:
                failpoints.hit = jittered(jitter, kill)
            try:
                drive(stream)
            finally:
                if count:
                    with self._counts.open("a") as counts:
                        counts.write(f"{CHANGE}\n" * changes.count)

        return Driver(self._fork(life), tuple(self.root / "gates" / gate for gate in gates))

    def wait(self, driver: Driver) -> Ending:
        """How a driver ended."""
        return Ending(os.waitstatus_to_exitcode(os.waitpid(driver.process, 0)[1]))

    def run(self, case: Path, stream: Stream, *, kill: Point | None = None, broken: str = "") -> Ending:
        """Start a driver and see it end."""
        return self.wait(self.start(case, stream, kill=kill, broken=broken))

    def count(self, case: Path, stream: Stream, *, broken: str = "") -> tuple[Ending, Counter[str]]:
        """Run a driver to its end and count the hits of each point."""
        self._counts.write_text("")
        driver = self.start(case, stream, count=True, broken=broken)
        ending = self.wait(driver)
        return ending, Counter(self._counts.read_text().split())

    def is_held(self, driver: Driver, gate: int = 0) -> bool:
        """Wait until a driver is held at a gate; False if it ended without coming there."""
        while not driver.gates[gate].exists():
            # It ends by its alarm at the latest. Its status must stay for `wait`.
            if os.waitid(os.P_PID, driver.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return False
            time.sleep(0.0005)
        return True

    def release(self, driver: Driver, gate: int = 0) -> None:
        """Let a held driver go on."""
        driver.gates[gate].unlink(missing_ok=True)

    def log(self) -> str:
        """What the last drivers said before they ended."""
        return self._log.read_text() if self._log.exists() else ""

    def tree(self, case: Path) -> str:
        """Every file of a case, a line each."""
        return "".join(f"    {path.relative_to(case)}\n" for path in sorted(case.rglob("*")) if path.is_file())

    def forget_log(self) -> None:
        """Begin a new log."""
        self._log.unlink(missing_ok=True)

    # How it is done.

    def _enliven(self, made: Path, stream: Stream) -> Path:
        self._number += 1
        return made.rename(self.live / name_of(self._number, stream))

    def _grown(self, stream: Stream) -> Path:
        case = self.root / "kept" / f"aged {stream.commit} {stream.sinks}"
        case.mkdir()

        def life() -> None:
            os.chdir(case)
            drive(stream, epochs=AGED)

        assert os.waitpid(self._fork(life), 0)[1] == 0, self.log()
        return case

    def _fork(self, life: Callable[[], None]) -> int:
        process = fork()
        if process:
            return process
        with _told_by_exit_code(self._log):
            life()
        raise AssertionError


@contextmanager
def _told_by_exit_code(log: Path) -> Iterator[None]:
    ending = Ending.FAILED
    try:
        signal.alarm(DEADLINE)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        sys.stderr = log.open("a")
        yield
        ending = Ending.DONE
    except FencedOut:
        ending = Ending.FENCED_OUT
    except ConcurrentUpdate:
        ending = Ending.CONCURRENT_UPDATE
    except BaseException:  # noqa: BLE001  # the exit code and the log tell it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(ending)


def jittered(seed: int, kill: Point | None = None) -> Callable[[str], None]:
    """Failpoints that move the drivers against each other, and may kill one at its n-th hit of any."""
    chance = random.Random(seed)
    hits = 0

    def hit(_: str) -> None:
        nonlocal hits
        hits += 1
        if kill and hits == kill.hit:
            os.kill(os.getpid(), signal.SIGKILL)
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.004)

    return hit


def copy_state(source: Path, target: Path) -> None:
    """Copy a folder; two names of one file stay two names of one file."""
    _copy(str(source), str(target), {})


def _copy(source: str, target: str, twins: dict[int, str]) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            copied = f"{target}/{entry.name}"
            if entry.is_dir():
                _copy(entry.path, copied, twins)
            elif entry.inode() in twins:
                os.link(twins[entry.inode()], copied)
            else:
                twins[entry.inode()] = copied
                with open(entry.path, "rb") as old, open(copied, "wb") as new:
                    new.write(old.read())
