"""Commands on a copy of a checkpoint touch nothing of the stream that runs on the original."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.scene import Scene, dying


def copied(scene: Scene) -> str:
    """A copy of the checkpoint, from before the original went on and prepared an epoch."""
    driver = scene.driver()
    scene.run(driver, 2)
    copy = scene.root / "copy"
    shutil.copytree(scene.checkpoint, copy)
    scene.prepare(driver, 2)
    return str(copy)


@pytest.mark.parametrize("options", [["gc", "--fence", "--yes"], ["gc", "--yes"]], ids=" ".join)
def test_gc_on_a_copy_removes_nothing_that_the_original_has_prepared(scene: Scene, options: list[str]) -> None:
    copy = copied(scene)
    before = {path: data for path, data in scene.disk().items() if path.startswith("directory/")}

    answer = scene.epochal(options[0], copy, *options[1:])

    assert {path: data for path, data in scene.disk().items() if path.startswith("directory/")} == before
    if "--fence" in options:
        assert answer.code == 2
        assert "and this journal is in" in answer.err
        assert "Nothing was changed" in answer.err


def test_abort_on_a_copy_is_refused_and_does_not_say_that_it_removed_something(scene: Scene) -> None:
    target = scene.target()
    with dying():
        first = scene.driver(target)
    scene.run(first, 1)
    scene.stage(first, target, 1)
    with dying():
        scene.driver(scene.target("other"))  # has superseded the first, and does not have its sink
    shutil.copytree(scene.checkpoint, scene.root / "copy")
    before = scene.disk()

    answer = scene.epochal("resolve", str(scene.root / "copy"), "--abort", "1")

    assert answer.code == 2
    assert "TwoJournals: sink 'directory'" in answer.err
    assert "This checkpoint is a copy, or was moved. Nothing was changed" in answer.err
    assert scene.disk() == before
    assert "removed 1 attempt at epoch 1" in scene.command("resolve", "--abort", "1").out


def test_recover_on_a_copy_that_knows_the_newest_start_finishes_what_both_have_decided(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)
    shutil.copytree(scene.checkpoint, scene.root / "copy")

    answer = scene.epochal("recover", str(scene.root / "copy"))

    assert answer.code == 0
    assert scene.target().epochs() == [0, 1]
    assert scene.command("recover").code == 0
    assert scene.target().epochs() == [0, 1]


def test_recover_on_a_copy_finishes_nothing_once_the_original_has_started_again(scene: Scene) -> None:
    scene.decide(scene.driver(), 0)
    shutil.copytree(scene.checkpoint, scene.root / "copy")
    scene.driver()
    before = scene.target().epochs()

    answer = scene.epochal("recover", str(scene.root / "copy"))

    assert answer.code == 2
    assert "The checkpoint was copied, moved or restored" in answer.err
    assert scene.target().epochs() == before


def test_status_of_a_copy_shows_what_a_start_would_refuse(scene: Scene) -> None:
    answer = scene.epochal("status", copied(scene))

    assert "The checkpoint was copied, moved or restored" in answer.out
