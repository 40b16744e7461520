"""What the console shows of a stream, in each state that a stream can be in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.cli.console import build
from epochal.cli.console.model import EpochLine, Level, Phase, SinkEpochLine, StreamSnapshot, to_json
from epochal.cli.console.timeline import lag_of, rows_per_second
from epochal.cli.console.watch import Reader
from epochal.sinks.config import kinds
from epochal.testing import DirectoryParticipant
from epochal.txn.live import LiveEpoch, LiveHeld, LiveState
from epochal.txn.live import SinkEpoch as SinkFacts
from integration_tests.old_versions.moving import unpack
from tests.cli.console import gallery
from tests.cli.scene import Scene, going_away

ARCHIVES = Path(__file__).parents[3] / "integration_tests" / "old_versions" / "v0"


def shown(checkpoint: Path, *, now: float | None = None) -> StreamSnapshot:
    return Reader(str(checkpoint), None, clock=(lambda: now) if now is not None else time.time)()


def test_a_running_stream_shows_when_each_sink_reached_each_step(tmp_path: Path) -> None:
    shot = shown(gallery.running(tmp_path))

    assert shot.headline.level is Level.OK
    assert shot.headline.text.startswith("running: epoch 45 is visible everywhere")
    assert (shot.driver.running, shot.driver.doing, shot.driver.generation) == (True, "idle", 2)
    assert (shot.committed, shot.done) == (45, 45)
    assert [sink.name for sink in shot.sinks] == ["archive", "lake", "serving"]
    assert {sink.behind for sink in shot.sinks} == {0}
    assert [line.epoch for line in shot.epochs] == list(range(46))
    assert {line.generation for line in shot.epochs} == {1, 2}
    for line in shot.epochs[28:]:  # of the driver that runs
        assert line.phase is Phase.VISIBLE
        for own in line.sinks.values():
            steps = [line.begun, own.staged, line.prepared, line.checkpointed, own.visible, line.done]
            assert None not in steps
            assert steps == sorted(step for step in steps if step is not None)
            assert own.bytes is not None


def test_the_rate_and_the_lag_of_a_running_stream_are_those_of_its_epochs(tmp_path: Path) -> None:
    now = time.time()

    shot = shown(gallery.running(tmp_path, now=now), now=now)

    for sink in shot.sinks:
        assert sink.rows_per_second == pytest.approx(300 / gallery.INTERVAL, rel=0.2)
        own = shot.epochs[-1].sinks[sink.name]
        assert own.visible is not None
        assert shot.epochs[-1].checkpointed is not None
        assert sink.lag == pytest.approx(own.visible - shot.epochs[-1].checkpointed)


def test_a_held_stream_names_the_sink_the_cause_and_since_when(tmp_path: Path) -> None:
    now = time.time()

    shot = shown(gallery.held(tmp_path, now=now), now=now)
    (held,) = shot.held
    sinks = {sink.name: sink for sink in shot.sinks}

    assert shot.headline.level is Level.WARNING
    assert gallery.REASON in shot.headline.text
    assert (held.epoch, held.sinks) == (12, {"lake": "visible", "ledger": "waiting"})
    assert gallery.REASON in held.cause
    assert (held.advice.level, held.advice.command) == (Level.WARNING, None)
    assert "tries again by itself" in held.advice.do
    assert (sinks["ledger"].behind, sinks["ledger"].held, sinks["lake"].behind) == (1, gallery.REASON, 0)
    assert sinks["ledger"].lag == pytest.approx(now - (held.since or 0))
    phases = {name: own.phase for name, own in shot.epochs[-1].sinks.items()}
    assert phases == {"lake": Phase.VISIBLE, "ledger": Phase.HELD}


def test_a_dead_stream_with_an_epoch_in_doubt_says_what_to_do(tmp_path: Path) -> None:
    (checkpoint,) = gallery.dead(tmp_path, "clicks")

    shot = shown(checkpoint)
    (doubt,) = shot.in_doubt

    assert (shot.driver.running, shot.driver.liveness) == (False, "dead")
    assert shot.headline.level is Level.ERROR
    assert (doubt.epoch, [generation for generation, _ in doubt.attempts]) == (17, [1, 2])
    assert doubt.advice.level is Level.WARNING
    assert "Start the query again" in doubt.advice.do
    assert "Keep the staged data" in doubt.advice.do
    assert shot.epochs[-1].phase is Phase.PREPARED
    assert shot.epochs[-1].generations == (1, 2)
    assert [left.state for left in shot.leftovers] == ["prepared", "prepared"]


def test_an_epoch_in_doubt_of_a_running_driver_needs_nothing(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)

    (doubt,) = shown(scene.checkpoint).in_doubt

    assert doubt.advice.level is Level.INFO
    assert doubt.advice.do.startswith("Nothing.")


def test_an_epoch_that_a_dead_driver_left_decided_is_finished_by_a_command(tmp_path: Path) -> None:
    (checkpoint,) = gallery.dead(tmp_path, "unfinished")

    shot = shown(checkpoint)
    (held,) = shot.held

    assert held.advice.command == shot.headline.command == f"epochal recover {checkpoint}"
    assert shot.epochs[-1].phase is Phase.HELD


def test_open_parts_are_listed_oldest_first_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SHOWN", 2)
    (checkpoint,) = gallery.dead(tmp_path, "sessions")

    shot = shown(checkpoint)

    assert shot.driver.liveness == "ended"
    assert shot.open_count == 3
    assert [part.first for part in shot.open] == sorted(part.first for part in shot.open)
    assert [part.bucket for part in shot.open] == ["day=2026-11-18/country=DE", "day=2026-11-18/country=FR"]


def test_without_a_live_file_the_journal_tells_when_an_epoch_was_prepared_decided_and_done(tmp_path: Path) -> None:
    (checkpoint,) = gallery.dead(tmp_path, "legacy")

    shot = shown(checkpoint)

    assert not shot.live
    assert len(shot.epochs) == 25
    for line in shot.epochs:
        assert line.begun is None
        assert None not in (line.prepared, line.checkpointed, line.done)
        (own,) = line.sinks.values()
        assert (own.phase, own.staged, own.visible, own.bytes) == (Phase.VISIBLE, None, line.done, None)
        assert own.rows == pytest.approx(300, rel=0.2)


@pytest.mark.parametrize(
    ("archive", "last", "doubt", "held"),
    [("in-doubt", Phase.PREPARED, [7], []), ("half-committed", Phase.HELD, [], [11])],
)
def test_a_journal_of_an_old_version_is_shown(
    tmp_path: Path, archive: str, last: Phase, doubt: list[int], held: list[int]
) -> None:
    unpack(ARCHIVES / f"{archive}.tar.gz", tmp_path)

    shot = shown(tmp_path / "checkpoint")

    assert shot.epochs[-1].phase is last
    assert [item.epoch for item in shot.in_doubt] == doubt
    assert [item.epoch for item in shot.held] == held
    assert shot.driver.running is not True
    assert shot.open_count > 0
    assert {sink.name for sink in shot.sinks} >= {"lines", "hours"}


def test_a_store_that_is_down_is_told_from_a_sink_whose_package_is_missing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(kinds.BUILT_IN, "buckets")
    scene = gallery.Painted(tmp_path, "both")
    scene.run(scene.driver(scene.target("down"), gallery.Buckets(str(tmp_path / "missing"), name="missing")), 1)

    with patch.object(DirectoryParticipant, "open", side_effect=ConnectionRefusedError("nobody listens")):
        sinks = {sink.name: sink for sink in shown(scene.checkpoint).sinks}

    assert (sinks["down"].error, sinks["down"].available) == ("nobody listens", True)
    assert "no participant of type 'buckets'" in sinks["missing"].error
    assert not sinks["missing"].available


def test_a_start_that_would_be_refused_is_said_with_what_to_do(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    for file in (scene.root / "directory").glob("0*"):
        file.unlink()

    shot = shown(scene.checkpoint)

    assert shot.headline.level is Level.ERROR
    assert shot.refusal is not None
    assert "the target was emptied" in shot.refusal.what
    assert shot.refusal.command == f"epochal status {scene.checkpoint}"


def test_a_snapshot_is_json(tmp_path: Path) -> None:
    shot = shown(gallery.held(tmp_path))

    again = json.loads(json.dumps(to_json(shot)))

    assert again["held"][0]["advice"]["level"] == "warning"
    assert again["epochs"][-1]["sinks"]["ledger"]["phase"] == "held"


def test_a_decided_epoch_of_a_live_driver_is_being_committed_before_it_is_held(scene: Scene) -> None:
    sink = scene.target()
    driver = scene.driver(sink)
    scene.decide(driver, 0)
    with going_away(sink), pytest.raises(Exception, match="nobody listens"):
        driver.settle()  # the decision is recorded
    now = time.time()
    gallery.tell(driver.journal, now)

    fresh, later = shown(scene.checkpoint, now=now + 1), shown(scene.checkpoint, now=now + 20)

    assert (fresh.epochs[0].phase, fresh.held[0].advice.level) == (Phase.COMMITTING, Level.INFO)
    assert (later.epochs[0].phase, later.held[0].advice.level) == (Phase.HELD, Level.WARNING)


def test_a_store_that_does_not_let_an_epoch_be_staged_is_named(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    now = time.time()
    hold = LiveHeld(sink="directory", step="stage", reason="nobody listens", since=now - 60, epoch=1)
    begun = LiveEpoch(epoch=1, generation=1, begun=now - 60)
    gallery.tell(driver.journal, now, [begun], state=LiveState.HELD, epoch=1, sink="directory", held=hold)

    shot = shown(scene.checkpoint)
    (held,) = shot.held

    assert (held.epoch, held.sinks, held.cause) == (1, {"directory": "waiting"}, "directory: nobody listens")
    assert held.advice.what == "Epoch 1 is not staged yet. directory: nobody listens."
    assert [(line.epoch, line.sinks["directory"].phase) for line in shot.epochs] == [
        (0, Phase.VISIBLE),
        (1, Phase.HELD),
    ]


def test_an_epoch_in_doubt_that_a_newer_driver_stages_again_is_being_staged(scene: Scene) -> None:
    targets = scene.target("one"), scene.target("two")
    scene.prepare(scene.driver(*targets), 0)
    driver = scene.driver(*targets)
    again = LiveEpoch(epoch=0, generation=2, begun=time.time(), sinks={"one": SinkFacts(staged=time.time())})
    gallery.tell(driver.journal, time.time(), [again], state=LiveState.STAGING, epoch=0)

    shot = shown(scene.checkpoint)

    assert [item.epoch for item in shot.in_doubt] == [0]
    assert [(line.generation, line.phase) for line in shot.epochs] == [(2, Phase.STAGING)]
    phases = {name: own.phase for name, own in shot.epochs[0].sinks.items()}
    assert phases == {"one": Phase.STAGED, "two": Phase.STAGING}


def test_an_epoch_that_a_dead_driver_was_staging_was_interrupted(tmp_path: Path) -> None:
    (checkpoint,) = gallery.dead(tmp_path, "staging")

    shot = shown(checkpoint)

    assert (shot.epochs[-1].epoch, shot.epochs[-1].phase) == (3, Phase.INTERRUPTED)
    assert "the next start replays it" in shot.headline.text


def test_what_a_live_file_says_of_an_attempt_that_lost_is_not_shown(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)
    driver = scene.driver()
    scene.run(driver, 1)
    gallery.tell(driver.journal, time.time(), [LiveEpoch(epoch=0, generation=1, begun=5.0, done=6.0)])

    (only,) = shown(scene.checkpoint).epochs

    assert (only.generation, only.begun) == (2, None)
    assert only.done is not None
    assert only.done > 6.0


def test_a_live_file_of_a_driver_that_was_replaced_says_nothing(scene: Scene) -> None:
    first = scene.driver()
    scene.run(first, 1)
    gallery.tell(first.journal, time.time())
    scene.run(scene.driver(), 2)

    assert not shown(scene.checkpoint).live


def line(epoch: int, at: float, *, rows: int = 100, phase: Phase = Phase.VISIBLE) -> EpochLine:
    own = SinkEpochLine(phase=phase, rows=rows, visible=at + 1 if phase is Phase.VISIBLE else None)
    return EpochLine(epoch=epoch, generation=1, phase=phase, checkpointed=at, sinks={"lake": own})


def test_the_rate_counts_rows_since_the_first_epoch_that_is_recent() -> None:
    epochs = [line(0, 0.0, rows=10**9), line(1, 1000.0), line(2, 1010.0), line(3, 1020.0)]

    assert rows_per_second(epochs, "lake", now=1021.0) == pytest.approx(200 / 20)
    assert rows_per_second(epochs, "lake", now=1041.0) == pytest.approx(200 / 40)  # nothing came since
    assert rows_per_second(epochs, "lake", now=9999.0) is None
    assert rows_per_second(epochs[:1], "lake", now=1.0) is None
    assert rows_per_second(epochs, "other", now=1021.0) is None


def test_the_lag_is_that_of_the_last_epoch_until_one_is_missing() -> None:
    seen, missing = [line(0, 0.0), line(1, 10.0)], [line(2, 20.0, phase=Phase.HELD), line(3, 30.0, phase=Phase.HELD)]

    assert lag_of(seen, "lake", now=100.0) == 1.0
    assert lag_of([*seen, *missing], "lake", now=100.0) == 80.0
    assert lag_of([], "lake", now=100.0) is None
