"""Drivers and standbys without Spark: forked processes, each leads a group of its own. They live for milliseconds."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from epochal.spark_plugins.standby.judging import Rules, WhenEnded
from epochal.spark_plugins.standby.looking import Lookout
from epochal.spark_plugins.standby.notices import Notices
from epochal.spark_plugins.standby.sight import Sight
from epochal.spark_plugins.standby.waiting import Watch
from epochal.spark_plugins.standby.zookeeper import ZooKeeperLease
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.testing.processes import fork
from epochal.testing.standin import ConcurrentUpdate
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import FencedOut
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.live import Live
from epochal.txn.live_fold import LiveObserver
from epochal.txn.live_writer import LiveWriter
from epochal.txn.model import Json
from epochal.txn.process import this_process
from epochal.txn.settler import Backoff, Settler

QUERY = "5eed0000-0000-4000-8000-000000000000"
HEARTBEAT = 0.02
LEASE = 1.0  # fifty heartbeats: the machine of a test may be busy
SINKS = ("one", "two")
TIMEOUT = 60.0
FILES = LocalFiles(sync=False)


class Ending(IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    FENCED_OUT = 10
    CONCURRENT_UPDATE = 11
    LEFT = 12  # a standby whose turn never came
    KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class World:
    """The files of one stream."""

    root: Path

    @property
    def checkpoint(self) -> str:
        return str(self.root / "checkpoint")

    @property
    def fed(self) -> Path:
        """Holds how many epochs there are to read."""
        return self.root / "fed"

    def feed(self, epochs: int) -> None:
        written = self.root / "fed.next"
        written.write_text(str(epochs))
        written.rename(self.fed)

    def journal(self, number: int = 1) -> Journal:
        return Journal(FILES, f"{self.checkpoint}/epochal" if number == 1 else f"{self.checkpoint}/epochal~{number}")

    def committed(self) -> set[int]:
        return {int(name) for name in FILES.names(f"{self.checkpoint}/commits") if name.isdecimal()}

    def shown(self) -> dict[str, list[Json]]:
        """The rows that each sink shows, in order of epochs; a row that is shown twice is there twice."""
        found: dict[str, list[Json]] = {}
        for sink in SINKS:
            names = sorted(path.name for path in (self.root / sink).glob("0*"))
            found[sink] = [int(name.partition(".")[0]) for name in names]
        return found

    def said(self) -> list[str]:
        """What the processes have noted, in order."""
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def note(self, text: str) -> None:
        with (self.root / "log").open("a") as log:
            log.write(f"{text}\n")


@dataclass
class Child:
    """One process."""

    pid: int
    ending: Ending | None = None

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def has_ended(self) -> bool:
        if self.ending is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ending = Ending(os.waitstatus_to_exitcode(status))
        return self.ending is not None

    def wait(self) -> Ending:
        deadline = time.monotonic() + TIMEOUT
        while not self.has_ended():
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("a driver did not end in time")
            time.sleep(0.002)
        assert self.ending is not None
        return self.ending


@dataclass
class Standbys:
    """Starts the processes of one test, and ends them with it."""

    world: World
    children: list[Child] = field(default_factory=list)

    def driver(self, points: str = "") -> Child:
        """One that starts at once."""
        return self._start(lambda: _drive(self.world, None), points)

    def standby(
        self,
        points: str = "",
        *,
        when_ended: WhenEnded = "leave",
        lease: float = LEASE,
        zookeeper: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Child:
        """One that waits for its turn. `clock` is its wall clock."""

        def live() -> None:
            watch = watch_of(self.world, Rules(lease=lease, when_ended=when_ended), clock)
            outside = None if zookeeper is None else ZooKeeperLease(zookeeper, self.world.checkpoint)
            watch.lease = outside
            done = watch.stand_by(lambda sight: _begun(self.world, sight, clock))
            if done is None:
                os._exit(Ending.LEFT)
            if outside is not None:
                outside.note(done[0].begun.record.start)
            _drive(self.world, done, clock, outside)

        return self._start(live, points)

    def _start(self, live: Callable[[], None], points: str) -> Child:
        pid = fork()
        if not pid:
            os._exit(_live(self.world, live, points))
        child = Child(pid)
        self.children.append(child)
        return child

    def end(self) -> None:
        for child in self.children:
            if child.ending is None:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)


def watch_of(world: World, rules: Rules, clock: Callable[[], float] = time.time) -> Watch:
    lookout = Lookout(FILES, world.checkpoint, world.journal)
    notices = Notices(lambda: (FILES, lookout.journal.path), lease=rules.lease, clock=clock)
    return Watch(lookout=lookout, rules=rules, notices=notices, between=0.0, sleep=lambda _: time.sleep(0.005))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.002)


Begun = tuple[Coordinator[Sequence[Json]], LiveWriter]


def _begun(world: World, sight: Sight | None, clock: Callable[[], float] = time.time) -> Begun:
    query: StandInQuery[Sequence[Json]] = StandInQuery(FILES, world.checkpoint, query_id=QUERY)
    observer = LiveObserver()
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=world.journal,
        checkpoint=query.checkpoint,
        participants=[DirectoryParticipant(str(world.root / sink), name=sink, files=FILES) for sink in SINKS],
        observers=[observer],
    )
    coordinator.begin(instead_of=None if sight is None else sight.start)
    number = coordinator.generation
    live = Live(
        lineage=coordinator.lineage,
        generation=number,
        start=coordinator.journal.view.start_of(number),
        journal=coordinator.journal.place,
        process=this_process(),
        at=clock(),
    )
    writer = LiveWriter(FILES, coordinator.journal.path, live, observer, heartbeat=HEARTBEAT, pause=0.0, clock=clock)
    writer.start()
    world.note(f"{os.getpid()} leads")
    return coordinator, writer


def _drive(
    world: World,
    begun: Begun | None,
    clock: Callable[[], float] = time.time,
    lease: ZooKeeperLease | None = None,
) -> None:
    """Run all epochs that there are, until the last is said to be there."""
    coordinator, live = begun or _begun(world, None, clock)
    settler = Settler(coordinator, backoff=Backoff(first=0.001, limit=0.05))
    query: StandInQuery[Sequence[Json]] = StandInQuery(FILES, world.checkpoint, query_id=QUERY)
    settled = False
    try:
        settler.settle(TIMEOUT)
        for epochs in _fed(world, coordinator, lease):
            query.run(epochs, lambda epoch: [epoch], settler.run, lambda: settler.settle(TIMEOUT))
        settler.settle(TIMEOUT)
        settled = True
    except FencedOut as fault:
        coordinator.reporter.refused(coordinator.lineage, fault, None)
        raise
    finally:
        coordinator.reporter.ended(coordinator.lineage, settled=settled)
        live.end()
        if lease is not None:
            lease.close()


def _fed(world: World, coordinator: Coordinator[Any], lease: ZooKeeperLease | None) -> Any:
    """How many epochs there are, each time that there are more; it ends with the file. As a driver looks while idle."""
    last = 0
    while world.fed.exists():
        try:
            now = int(world.fed.read_text())
        except FileNotFoundError:
            return
        if now > last:
            yield now
            last = now
        why = coordinator.begun.why_superseded(coordinator.journal.read())
        if why is not None:
            raise FencedOut(why)
        if lease is not None and not lease.is_ours():
            raise FencedOut("the lease was lost")
        time.sleep(0.002)


def _live(world: World, live: Callable[[], None], points: str) -> int:
    try:
        os.setpgid(0, 0)
        failpoints.arm(points)
        live()
        return Ending.DONE
    except FencedOut:
        return Ending.FENCED_OUT
    except ConcurrentUpdate:
        return Ending.CONCURRENT_UPDATE
    except BaseException:  # noqa: BLE001  # the test reads it
        world.note(traceback.format_exc())
        return Ending.FAILED
    finally:
        sys.stdout.flush()
