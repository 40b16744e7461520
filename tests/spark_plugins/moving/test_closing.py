"""How a restore waits for the driver of the original, which it has fenced."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from epochal.spark_plugins.moving.closing import LOOK, _wait
from epochal.spark_plugins.moving.origin import Origin
from epochal.txn.live import HEARTBEAT, Live, LiveState, encode, live_beside, name_of
from epochal.txn.takeover import QUIET
from tests.cli.scene import QUERY, Scenery, dying, elsewhere


@dataclass
class Stage:
    """A stream whose driver has started, and what that driver writes while time passes in sleeps."""

    scene: Scenery
    skew: float = 0.0  # seconds by which the driver's clock is ahead
    beats_until: float = 0.0  # when it writes its last live file but the one that says that it has ended
    ends_at: float | None = None
    now: float = 0.0
    sequence: int = 0

    def live(self, state: LiveState = LiveState.IDLE) -> None:
        journal = self.scene.journal
        latest = journal.read().latest
        assert latest is not None
        self.sequence += 1
        live = Live(
            lineage=QUERY,
            generation=latest.generation,
            start=latest.start,
            journal=journal.place,
            process=latest.driver.process,
            at=time.time() + self.skew,
            state=state,
        )
        folder = Path(live_beside(journal.path))
        folder.mkdir(exist_ok=True)
        (folder / name_of(latest.generation, self.sequence)).write_bytes(encode(live))

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        if int(self.now / HEARTBEAT) > int(before / HEARTBEAT) and self.now <= self.beats_until:
            self.live()
        if self.ends_at is not None and before < self.ends_at <= self.now:
            self.live(LiveState.ENDED)

    def wait(self, seconds: float) -> str:
        journal = self.scene.journal
        latest = journal.read().latest
        assert latest is not None
        origin = Origin.at(str(self.scene.checkpoint))
        return _wait(origin, journal, latest, seconds, ticks=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    scene = Scenery(tmp_path)
    with elsewhere():
        scene.driver()
    return Stage(scene)


@pytest.mark.parametrize("skew", [-86_400.0, -31.0, 0.0, 31.0, 86_400.0])
def test_a_driver_elsewhere_is_waited_for_while_it_writes_whatever_its_clock_says(stage: Stage, skew: float) -> None:
    stage.skew, stage.beats_until, stage.ends_at = skew, 32.0, 32.0
    stage.live()

    assert stage.wait(60.0) == ""
    assert stage.now == pytest.approx(32.0, abs=2 * LOOK)


@pytest.mark.parametrize("skew", [-86_400.0, -31.0, 0.0, 31.0, 86_400.0])
def test_one_that_died_there_is_not_waited_for_long_whatever_its_clock_said(stage: Stage, skew: float) -> None:
    stage.skew = skew
    stage.live()

    assert stage.wait(600.0) == ""
    assert stage.now == pytest.approx(QUIET, abs=2 * LOOK)


def test_one_that_does_not_end_is_named(stage: Stage) -> None:
    stage.skew, stage.beats_until = -31.0, 600.0
    stage.live()

    assert stage.wait(30.0) == "pid 1 on elsewhere"


def test_nobody_waits_for_a_driver_that_is_gone_or_has_ended(tmp_path: Path) -> None:
    scene = Scenery(tmp_path)
    with dying():
        scene.driver()
    dead = Stage(scene)
    dead.live()

    assert (dead.wait(60.0), dead.now) == ("", 0.0)
    with elsewhere():
        scene.driver()
    dead.live(LiveState.ENDED)
    assert (dead.wait(60.0), dead.now) == ("", 0.0)
