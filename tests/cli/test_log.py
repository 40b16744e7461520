"""`epochal log`: which epochs a journal knows and what they read, also when the checkpoint is gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.scene import ROWS, Scene
from tests.cli.test_schemas import check


def test_each_epoch_is_listed_with_its_state_its_rows_and_where_it_ends(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 2)
    (scene.checkpoint / "offsets" / "2").write_bytes(b'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":120}}')
    driver.run(2, scene.rows)

    answer = scene.command("log", "--json")
    epochs = answer.json["epochs"]

    assert answer.code == 0
    check("log", answer.json)
    assert [(one["epoch"], one["state"]) for one in epochs] == [(0, "done"), (1, "done"), (2, "prepared")]
    assert [one["sources"]["0"]["end"] for one in epochs] == [{"epoch": 0}, {"epoch": 1}, {"orders": {"0": 120}}]
    assert epochs[0]["rows"] == {"directory": len(ROWS)}
    shown = scene.command("log").out
    assert '{"orders":{"0":120}}' in shown
    assert "directory 3" in shown


def test_an_attempt_that_another_start_replaced_is_not_called_lost(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)
    scene.run(scene.driver(), 1)

    found = scene.command("log", "--json").json
    shown = scene.command("log").out

    check("log", found)
    assert [(one["generation"], one["state"], one["replaced_by"]) for one in found["epochs"]] == [
        (1, "lost", 2),
        (2, "done", None),
    ]
    assert "replaced by generation 2" in shown
    assert "lost" not in shown


def test_a_journal_whose_checkpoint_is_lost_still_says_what_was_read(scene: Scene, tmp_path: Path) -> None:
    scene.run(scene.driver(), 1)
    journal = tmp_path / "kept"
    shutil.copytree(scene.checkpoint / "epochal", journal)
    shutil.rmtree(scene.checkpoint)

    answer = scene.epochal("log", str(journal), "--json")

    assert answer.json["journal"] == str(journal)
    assert answer.json["epochs"][0]["sources"] == {"0": {"end": {"epoch": 0}}}


def test_what_new_began_is_listed_after_what_it_closed(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    shutil.rmtree(scene.checkpoint / "commits")
    scene.run(scene.driver(new="1f0c9a2e@0"), 1)

    epochs = scene.command("log", "--json").json["epochs"]

    assert [(one["incarnation"], one["epoch"]) for one in epochs] == [(1, 0), (2, 0)]


def test_epochs_that_are_folded_away_or_have_no_offsets_are_told(scene: Scene) -> None:
    scene.run(scene.driver(), 100)
    (scene.checkpoint / "offsets" / "100").write_text("v9\nunknown")
    scene.driver().run(100, scene.rows)

    lines = scene.command("log").out.splitlines()
    folded = scene.command("log", "--json").json["folded_through"]

    assert next(line for line in lines if line.strip().startswith("100 ")).endswith("not recorded")
    assert folded > 0
    assert lines[-1] == f"epochs up to {folded} are folded away"


def test_a_folder_that_is_neither_is_refused(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    answer = scene.epochal("log", str(tmp_path / "other"), "--json")

    assert answer.code == 2
    assert "neither a checkpoint that epochal has written nor a journal" in json.loads(answer.out)["error"]["message"]
