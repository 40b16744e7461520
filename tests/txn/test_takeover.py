"""A new driver waits for the earlier one: until it has ended, is gone, is silent, or time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from epochal.txn.driver_facts import DriverFacts
from epochal.txn.errors import FencedOut
from epochal.txn.events import Event, Observers, TakeoverBegun, TakeoverEnded
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.live import HEARTBEAT, Live, LiveState, encode, live_beside, name_of
from epochal.txn.process import Process, Running
from epochal.txn.records import GenerationStarted
from epochal.txn.reporting import Reporter
from epochal.txn.start import Generation
from epochal.txn.takeover import LOOK, QUIET, Takeover

FILES = LocalFiles(sync=False)
NOW = 1_000_000.0
OLD = Process(host="spark-1", pid=11, ticks=1, machine="m1")
NEW = Process(host="spark-1", pid=22, ticks=2, machine="m1")


@dataclass
class Stage:
    """A journal with one driver, and a second one that has claimed its generation. Time passes when it sleeps."""

    journal: Journal
    running: Running = Running.YES
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    script: dict[float, Callable[[], object]] = field(default_factory=dict)  # what happens at which time
    sequence: int = 0
    skew: float = 0.0  # seconds by which the old driver's clock is ahead
    beats: bool = False  # whether the old driver writes its live file with each heartbeat

    def claim(self, number: int, process: Process, **more: Any) -> Generation:
        before = self.journal.read()
        record = GenerationStarted(
            generation=number,
            query="q",
            base=0,
            start=f"start-{number}",
            driver=DriverFacts(process=process, **more),
            at="2026-11-18T12:00:00Z",
        )
        assert self.journal.claim(record)
        return Generation(self.journal, 1, record, before, {}, {})

    def live(self, number: int = 1, *, state: LiveState = LiveState.IDLE) -> None:
        self.sequence += 1
        folder = Path(live_beside(self.journal.path))
        folder.mkdir(exist_ok=True)
        live = Live(
            lineage="q",
            generation=number,
            start=f"start-{number}",
            journal=self.journal.place,
            process=OLD,
            at=NOW + self.now + self.skew,
            state=state,
        )
        (folder / name_of(number, self.sequence)).write_bytes(encode(live))

    def sleep(self, seconds: float) -> None:
        if self.beats and int((self.now + seconds) / HEARTBEAT) > int(self.now / HEARTBEAT):
            self.live()
        self.now += seconds
        for at in sorted(self.script):
            if at <= self.now:
                self.script.pop(at)()

    def takeover(self, generation: Generation) -> Takeover:
        reporter = Reporter(Observers([self.events.append], stream="orders"))
        return Takeover(
            generation=generation,
            files=FILES,
            reporter=reporter,
            me=NEW,
            looked_up=lambda _: self.running,
            ticks=lambda: self.now,
            sleep=self.sleep,
        )

    @property
    def ends(self) -> list[tuple[int, str]]:
        return [(e.earlier, e.how) for e in self.events if isinstance(e, TakeoverEnded)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "epochal").mkdir()
    stage = Stage(Journal(FILES, str(tmp_path / "epochal")))
    stage.claim(1, OLD)
    return stage


def test_it_waits_until_the_earlier_driver_says_that_it_has_ended(stage: Stage) -> None:
    stage.live()
    stage.script[3.0] = lambda: stage.live(state=LiveState.ENDED)
    stage.takeover(stage.claim(2, NEW)).wait(60.0)

    begun, ended = stage.events
    assert isinstance(begun, TakeoverBegun)
    assert (begun.earlier, begun.host, begun.pid, begun.since) == (1, "spark-1", 11, "2026-11-18T12:00:00Z")
    assert isinstance(ended, TakeoverEnded)
    assert ended.how == "ended"
    assert ended.seconds == pytest.approx(3.0, abs=LOOK)


def test_it_waits_until_its_process_is_gone(stage: Stage) -> None:
    stage.live()
    stage.beats = True
    stage.script[20.0] = lambda: setattr(stage, "running", Running.NO)
    stage.takeover(stage.claim(2, NEW)).wait(60.0)

    assert stage.ends == [(1, "gone")]
    assert stage.now == pytest.approx(20.0, abs=LOOK)


@pytest.mark.parametrize("running", [Running.YES, Running.UNKNOWN])
def test_a_driver_that_hangs_or_died_elsewhere_is_not_waited_for_long(stage: Stage, running: Running) -> None:
    stage.running = running
    stage.live()
    stage.takeover(stage.claim(2, NEW)).wait(600.0)

    assert stage.ends == [(1, "silent")]
    assert stage.now == pytest.approx(QUIET, abs=LOOK)


@pytest.mark.parametrize("skew", [-86_400.0, -31.0, 31.0, 86_400.0])
def test_a_driver_elsewhere_whose_clock_differs_is_waited_for_while_it_writes(stage: Stage, skew: float) -> None:
    stage.running, stage.skew = Running.UNKNOWN, skew
    stage.live()
    stage.beats = True
    stage.script[32.0] = lambda: stage.live(state=LiveState.ENDED)
    stage.takeover(stage.claim(2, NEW)).wait(60.0)

    assert stage.ends == [(1, "ended")]
    assert stage.now == pytest.approx(32.0, abs=LOOK)


@pytest.mark.parametrize("skew", [-86_400.0, -31.0, 31.0, 86_400.0])
def test_a_clock_that_differs_does_not_make_a_dead_driver_look_alive(stage: Stage, skew: float) -> None:
    stage.running, stage.skew = Running.UNKNOWN, skew
    stage.live()
    stage.takeover(stage.claim(2, NEW)).wait(600.0)

    assert stage.ends == [(1, "silent")]
    assert stage.now == pytest.approx(QUIET, abs=LOOK)


def test_a_driver_that_lives_but_does_not_end_is_waited_for_until_time_is_up(stage: Stage) -> None:
    stage.running = Running.UNKNOWN
    stage.live()
    stage.beats = True
    stage.takeover(stage.claim(2, NEW)).wait(45.0)

    assert stage.ends == [(1, "timeout")]
    assert stage.now == pytest.approx(45.0, abs=LOOK)


def test_nobody_waits_for_a_driver_that_is_gone(stage: Stage) -> None:
    generation = stage.claim(2, NEW)
    stage.live()
    stage.running = Running.NO
    assert stage.takeover(generation).earlier() == []
    stage.running = Running.YES
    stage.live(state=LiveState.ENDED)
    assert stage.takeover(generation).earlier() == []  # its program goes on without the query
    stage.takeover(generation).wait(60.0)
    assert (stage.events, stage.now) == ([], 0.0)


def test_nobody_waits_for_a_command_or_for_this_process_itself(stage: Stage) -> None:
    by_command = stage.claim(2, OLD, by_command=True)
    assert stage.takeover(replace(by_command, before=stage.journal.read())).earlier() == []
    generation = stage.claim(3, NEW)
    assert stage.takeover(replace(generation, before=stage.journal.read())).earlier() == []


def test_a_driver_without_a_live_file_is_waited_for_by_its_process_alone(stage: Stage) -> None:
    generation = stage.claim(2, NEW)
    stage.running = Running.UNKNOWN  # an older epochal, elsewhere: nothing tells
    assert stage.takeover(generation).earlier() == []
    stage.running = Running.YES
    stage.takeover(generation).wait(60.0)

    assert stage.ends == [(1, "silent")]


def test_of_two_new_drivers_the_older_gives_way_and_the_newer_waits_for_all(stage: Stage) -> None:
    stage.live()
    second = stage.claim(2, replace(NEW, pid=33))
    third: list[Generation] = []
    stage.script[1.0] = lambda: third.append(stage.claim(3, NEW))

    with pytest.raises(FencedOut, match=r"generation 3 has taken over\. It is pid 22 on spark-1, started 2026"):
        stage.takeover(second).wait(60.0)
    stage.live(2, state=LiveState.ENDED)
    stage.script[2.0] = lambda: stage.live(1, state=LiveState.ENDED)
    stage.takeover(third[0]).wait(60.0)
    assert stage.ends == [(1, "ended")]
