"""``epochal savepoint``, ``savepoints`` and ``restore`` in folders that others use too, and several at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.cli.streams import build
from epochal.sinks.storage.hadoop import resolve
from epochal.spark_plugins.moving import by_rename
from epochal.spark_plugins.moving.by_rename import ByRename
from epochal.spark_plugins.moving.restoring import restore
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.moving.taking import Progress
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from tests.cli.scene import Answer, Scene
from tests.cli.test_savepoint import Elsewhere, restored, saved, shown, stopped, with_state


@pytest.mark.parametrize("fork", [False, True], ids=["restore", "fork"])
def test_of_two_restores_into_one_folder_none_publishes_a_part(scene: Scene, fork: bool) -> None:
    stopped(scene, 3)
    with_state(scene, 3)
    savepoint, new = saved(scene), str(scene.root / "new")

    def another(done: Progress) -> None:
        if done.files == 3:
            ByRename.at(*resolve(new))

    with pytest.raises(Refused, match="by another restore into"):
        restore(savepoint, new, build=build, fork=fork, on_progress=another)
    assert not (scene.root / "new").exists()
    assert restored(scene, savepoint).code == 0
    elsewhere = Elsewhere(scene)
    elsewhere.run(elsewhere.driver(), 5)
    assert shown(scene) == list(range(5))


def test_where_a_rename_replaces_no_empty_folder_none_but_an_empty_one_is_removed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(scene, 3)
    savepoint, new = saved(scene), scene.root / "new"
    new.mkdir()
    monkeypatch.setattr(by_rename, "is_local", lambda _: False)  # HDFS is like that
    before = ByRename._remove_empty

    def another(self: ByRename) -> None:
        (new / "metadata").write_text("another restore was faster")
        before(self)

    with patch.object(ByRename, "_remove_empty", another):
        lost = restored(scene, savepoint, "--fork")
    kept = sorted(path.name for path in new.iterdir())
    shutil.rmtree(new)
    new.mkdir()
    answer = restored(scene, savepoint, "--fork")

    assert lost.code == 2
    assert "has come to be while this ran" in lost.err
    assert kept == ["metadata"]
    assert answer.code == 0, answer.err
    assert sorted(path.name for path in scene.root.iterdir() if "restoring" in path.name) == []


@pytest.mark.parametrize("there", [True, False], ids=["to an empty folder", "to nothing"])
def test_a_checkpoint_may_be_restored_where_a_link_leads(scene: Scene, there: bool) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    if there:
        (scene.root / "disk").mkdir()
    (scene.root / "new").symlink_to(scene.root / "disk")
    answer = restored(scene, savepoint)
    new = Elsewhere(scene)
    new.run(new.driver(), 5)

    assert answer.code == 0, answer.err
    assert (scene.root / "disk" / "metadata").exists()
    assert shown(scene) == list(range(5))


def test_a_place_to_which_nothing_can_be_renamed_is_refused_before_the_original_is_closed(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    (scene.root / "new").touch()
    taken = restored(scene, savepoint)
    (scene.root / "new").unlink()
    with patch("os.path.ismount", return_value=True):
        mounted = restored(scene, savepoint)

    assert (taken.code, mounted.code) == (2, 2)
    assert "new is not a folder" in taken.err
    assert "is a mount point" in mounted.err
    scene.run(scene.driver(), 5)
    assert shown(scene) == list(range(5))


@pytest.mark.parametrize("fork", ["", "--fork"])
@pytest.mark.parametrize("place", ["checkpoint/new", "checkpoint/epochal/new", "directory/new", "link/new", "lake/new"])
def test_a_checkpoint_is_not_restored_into_another_nor_among_the_rows_of_a_target(
    scene: Scene, place: str, fork: str
) -> None:
    """A folder in its journal stops the original; in a target it is read as data."""
    stopped(scene, 3)
    savepoint = saved(scene)
    (scene.root / "link").symlink_to(scene.checkpoint / "epochal")
    (scene.root / "lake" / "_delta_log").mkdir(parents=True)
    (scene.root / "lake" / "_delta_log" / f"{0:020}.json").touch()
    answer = scene.epochal("restore", savepoint, str(scene.root / place), *filter(None, [fork]))

    assert answer.code == 2
    assert "is inside" in answer.err
    assert "Nothing was written" in answer.err
    scene.run(scene.driver(), 5)
    assert shown(scene) == list(range(5))


def test_a_checkpoint_may_be_in_a_folder_of_a_target_that_readers_skip(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    (scene.root / "lake" / "_delta_log").mkdir(parents=True)
    (scene.root / "lake" / "_delta_log" / f"{0:020}.json").touch()

    assert restored(scene, savepoint, to="lake/_checkpoints/new").code == 0


def test_links_that_lead_nowhere_beside_a_checkpoint_do_no_harm(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    (scene.root / "loop").symlink_to(scene.root / "loop")
    (scene.root / "dangling").symlink_to(scene.root / "nothing")

    assert restored(scene, savepoint).code == 0


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("loop", "is a link that leads to no folder"),
        ("loop/below", "is a link that leads to no folder"),
        ("pair", "is a link that leads to no folder"),
        ("file/new", "is not a folder"),
        ("file/a/b", "is not a folder"),
    ],
)
@pytest.mark.parametrize("fork", ["", "--fork"])
def test_a_place_that_can_be_no_folder_is_refused_by_name(scene: Scene, place: str, why: str, fork: str) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    (scene.root / "loop").symlink_to(scene.root / "loop")
    (scene.root / "pair").symlink_to(scene.root / "other")
    (scene.root / "other").symlink_to(scene.root / "pair")
    (scene.root / "file").touch()
    answers = [
        scene.epochal("restore", savepoint, str(scene.root / place), *filter(None, [fork])),
        scene.command("savepoint", str(scene.root / place)),
        scene.epochal("savepoints", str(scene.root / place)),
    ]

    for answer in answers[:2]:
        assert answer.code == 2, answer.err
        assert why in answer.err
        assert "Nothing was written" in answer.err
    assert answers[2].code == 2, answers[2].err
    scene.run(scene.driver(), 5)
    assert shown(scene) == list(range(5))


def test_a_store_that_keeps_journals_only_is_refused_by_what_it_is(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    answers = [
        scene.command("savepoint", "gs://bucket/backups"),
        scene.epochal("savepoints", "gs://bucket/backups", "--verify"),
        scene.epochal("restore", savepoint, "gs://bucket/new"),
        scene.epochal("restore", "gs://bucket/backups/one", str(scene.root / "new")),
        scene.command("rescale", "--partitions", "2", "--savepoints", "gs://bucket/backups"),
    ]

    for answer in answers:
        assert answer.code == 2, answer.err
        assert "on this store epochal keeps journals only. Nothing was written" in answer.err


def test_a_link_into_the_checkpoint_is_refused_as_a_folder_of_savepoints(scene: Scene) -> None:
    stopped(scene, 3)
    (scene.checkpoint / "inside").mkdir()
    (scene.root / "backups").symlink_to(scene.checkpoint / "inside")
    answer = scene.command("savepoint", str(scene.root / "backups"))

    assert answer.code == 2
    assert "are inside each other" in answer.err


def test_only_savepoints_and_their_files_are_ever_removed_from_their_folder(scene: Scene) -> None:
    backups = scene.root / "backups"
    (backups / "objects" / "ab").mkdir(parents=True)
    (backups / "pictures").mkdir()
    mine = [backups / "objects" / "ab" / "mine.txt", backups / "objects" / "readme", backups / "pictures" / "a.jpg"]
    for path in mine:
        path.touch()
    (backups / "empty").mkdir()
    stopped(scene, 3)
    name = Path(saved(scene)).name
    refused = scene.epochal("savepoints", str(backups), "--remove", "pictures")
    removed = scene.epochal("savepoints", str(backups), "--remove", name)

    assert refused.code == 2
    assert "has no savepoint pictures" in refused.err
    assert removed.code == 0, removed.err
    assert {path for path in backups.rglob("*") if path.is_file()} == {*mine}
    assert (backups / "empty").is_dir()


def test_content_that_was_lost_and_is_stored_anew_is_read_back(scene: Scene) -> None:
    stopped(scene, 3)
    saved(scene)
    for path in (scene.root / "backups" / "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")  # as a power cut leaves it
    with patch.object(SavepointStore, "verify", autospec=True, side_effect=SavepointStore.verify) as verify:
        savepoint = saved(scene)

    assert verify.call_count > 10
    assert restored(scene, savepoint).code == 0


@pytest.mark.parametrize("content", ["[" * 200_000, "9" * 5_000, '{"at": 1e999, "pid": 1e999}', "[]", ""])
def test_a_foreign_file_among_those_of_running_savepoints_stops_none(scene: Scene, content: str) -> None:
    stopped(scene, 3)
    foreign = scene.root / "backups" / "taking" / "foreign.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text(content)

    assert restored(scene, saved(scene)).code == 0


@pytest.mark.parametrize("step", ["before-restore-target", "after-restore-target"])
def test_of_two_restores_the_one_that_makes_the_checkpoint_has_claimed_the_targets(scene: Scene, step: str) -> None:
    stopped(scene, 3)
    savepoint, before = saved(scene), failpoints.hit
    answers: list[Answer] = []

    def hit(name: str) -> None:
        if name == step and not answers:
            answers.append(Answer(-1, "", ""))  # this one is in the middle of it: not for the other
            answers.append(restored(scene, savepoint))
        before(name)

    with patch.object(failpoints, "hit", hit):
        first = restored(scene, savepoint)
    new = Elsewhere(scene)
    if not new.checkpoint.exists():
        assert restored(scene, savepoint).code == 0
    new.run(new.driver(), 5)

    assert [first.code, answers[1].code].count(0) <= 1
    assert shown(scene) == list(range(5))


def test_a_savepoint_that_is_removed_while_it_is_restored_has_been_read_before_targets_are_claimed(
    scene: Scene,
) -> None:
    stopped(scene, 3)
    savepoint, before = saved(scene), failpoints.hit
    shutil.rmtree(scene.checkpoint)

    def hit(name: str) -> None:
        if name == "before-restore-target":
            shutil.rmtree(scene.root / "backups", ignore_errors=True)
        before(name)

    with patch.object(failpoints, "hit", hit):
        answer = restored(scene, savepoint, "--lost-original")
    new = Elsewhere(scene)

    assert answer.code == 0, answer.err
    new.run(new.driver(), 5)
    assert shown(scene) == list(range(5))
