from __future__ import annotations

import pytest

from epochal.testing import DirectoryParticipant
from epochal.txn.errors import FencedOut
from epochal.txn.files import TEMPORARY
from tests.cli.scene import ROWS, Scene


def leave_one_of_each(scene: Scene) -> DirectoryParticipant:
    """Generation 1 died staging, 2 after PREPARED, and 3 is staging: all at epoch 1."""
    target = scene.target()
    first, second = scene.driver(target), None
    scene.run(first, 1)
    second = scene.driver(target)
    scene.prepare(second, 1)
    third = scene.driver(target)
    # Only now: every start clears what the rules allow.
    scene.stage(first, target, 1)
    scene.stage(third, target, 1)
    (scene.checkpoint / "epochal" / f"{TEMPORARY}x").write_bytes(b"half")
    return target


def staged(target: DirectoryParticipant, scene: Scene) -> list[int]:
    return [attempt.generation for attempt in target.leftovers(scene.journal.read().lineage or "")]


def test_a_dry_run_removes_nothing_and_says_what_it_would_remove(scene: Scene) -> None:
    leave_one_of_each(scene)
    before = scene.disk()

    answer = scene.command("gc")

    assert answer.code == 0
    assert "dry run: --yes would remove 1 attempt, 1 temporary file of the journal; 2 kept" in answer.out
    assert scene.disk() == before


def test_yes_removes_only_what_the_rules_allow(scene: Scene) -> None:
    target = leave_one_of_each(scene)

    found = scene.command("gc", "--yes", "--json").json

    assert [left["generation"] for left in found["removed"]] == [1]
    assert [(left["generation"], left["state"]) for left in found["kept"]] == [(2, "prepared"), (3, "staging")]
    assert "in doubt" in found["kept"][0]["why"]
    assert "may be at work" in found["kept"][1]["why"]
    assert staged(target, scene) == [2, 3]
    assert scene.command("status", "--json").json["journal"]["temporary"] == 0


def test_what_is_removed_was_sealed_first(scene: Scene) -> None:
    target = scene.target()
    first = scene.driver(target)
    scene.driver(target)
    scene.stage(first, target, 0)

    scene.command("gc", "--yes")

    with pytest.raises(FencedOut):
        scene.prepare(first, 0)
    assert scene.command("status", "--json").json["in_doubt"] == []
    assert list(scene.journal.read().attempts[0]) == [1]


def test_a_live_driver_is_not_disturbed_without_fence(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)

    scene.command("gc", "--yes")
    scene.run(driver, 2)

    assert scene.target().epochs() == [0, 1]


def test_fence_stops_a_live_driver_and_lets_everything_older_go(scene: Scene) -> None:
    target = leave_one_of_each(scene)
    live = scene.driver(target)
    scene.stage(live, target, 1)

    answer = scene.command("gc", "--yes", "--fence")

    assert "generation 5 claimed" in answer.out
    assert staged(target, scene) == [2]
    with pytest.raises(FencedOut):
        scene.prepare(live, 1)


def test_fence_without_yes_stops_nobody(scene: Scene) -> None:
    target = leave_one_of_each(scene)
    before = scene.disk()

    found = scene.command("gc", "--fence", "--json").json

    assert [left["generation"] for left in found["removable"]] == [1, 3]
    assert found["fenced_by"] is None
    assert scene.disk() == before
    assert staged(target, scene) == [1, 2, 3]


def test_after_a_fence_the_query_starts_and_the_prepared_attempt_is_still_there(scene: Scene) -> None:
    target = leave_one_of_each(scene)
    scene.command("gc", "--yes", "--fence")

    scene.run(scene.driver(target), 3)

    assert target.epochs() == [0, 1, 2]
    assert scene.command("status", "--json").json["leftovers"] == []


def test_a_prepared_attempt_that_spark_checkpoints_later_is_not_lost(scene: Scene) -> None:
    target = scene.target()
    stalled = scene.driver(target)
    scene.prepare(stalled, 0)
    scene.command("gc", "--yes", "--fence")
    (scene.checkpoint / "commits").mkdir()
    (scene.checkpoint / "commits" / "0").write_bytes(b"v1\n{}")

    scene.command("recover")

    assert target.rows() == list(ROWS)


def test_leftovers_of_a_sink_that_no_driver_has_any_more_are_found(scene: Scene) -> None:
    old = scene.target("old")
    first = scene.driver(old)
    scene.driver(scene.target("new"))
    scene.stage(first, old, 0)

    found = scene.command("gc", "--yes", "--json").json

    assert [(left["sink"], left["generation"]) for left in found["removed"]] == [("old", 1)]


def test_a_store_that_is_away_does_not_keep_the_others_dirty(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = scene.target("left"), scene.target("right")
    first = scene.driver(left, right)
    scene.driver(left, right)
    scene.stage(first, right, 0)
    really = DirectoryParticipant.leftovers

    def away(self: DirectoryParticipant, lineage: str, scratch: str) -> object:
        if self.name == "left":
            raise ConnectionRefusedError("nobody listens")
        return really(self, lineage, scratch)

    monkeypatch.setattr(DirectoryParticipant, "leftovers", away)
    answer = scene.command("gc", "--yes", "--json")

    assert answer.code == 1
    assert [item["sink"] for item in answer.json["away"]] == ["left"]
    assert [item["sink"] for item in answer.json["removed"]] == ["right"]


def test_nothing_to_remove_is_said(scene: Scene) -> None:
    scene.run(scene.driver(), 1)

    assert scene.command("gc").out == "nothing to remove\n"
