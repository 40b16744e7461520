from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from epochal.testing import DirectoryParticipant
from epochal.txn.errors import CommitFailed
from epochal.txn.files import TEMPORARY
from epochal.txn.model import Json
from tests.cli.scene import QUERY, ROWS, Scene, going_away


def test_a_settled_stream_is_reported_in_full(scene: Scene) -> None:
    scene.run(scene.driver(), 3)

    found = scene.command("status", "--json").json

    assert found["query"] == found["lineage"] == QUERY
    assert (found["base"], found["committed"], found["done"], found["settled"]) == (0, 2, 2, True)
    assert found["generation"]["number"] == 1
    assert found["generation"]["epochal"] == "0.0.0"
    assert found["commit"] == "checkpoint"
    (sink,) = found["sinks"]
    assert (sink["name"], sink["type"], sink["last"], sink["current"]) == ("directory", "directory", 2, True)
    assert sink["target"] == str(scene.root / "directory")
    assert found["in_doubt"] == found["held"] == found["leftovers"] == []
    assert found["journal"]["records"] == 1 + 3 * 3
    assert found["refusal"] is None


def test_epochs_that_nothing_could_prove_to_come_back_the_same_are_named(scene: Scene) -> None:
    (scene.checkpoint / "offsets").mkdir()
    (scene.checkpoint / "offsets" / "0").write_text("v1\n{}\n5")  # a socket's offset
    scene.run(scene.driver(), 2)

    found = scene.command("status", "--json").json["unprovable"]
    answer = scene.command("status")

    assert [epoch["epoch"] for epoch in found] == [0]
    assert "epoch 0: its source keeps no log of what it read. If the checkpoint is restored" in answer.out


def test_the_table_names_every_fact_of_the_json(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 2)
    scene.prepare(driver, 2)

    answer = scene.command("status")

    assert answer.code == 0
    for fact in (QUERY, str(scene.checkpoint), "directory", "in doubt", "leftovers", "prepared", "keep"):
        assert fact in answer.out
    assert "\033" not in answer.out


def test_an_in_doubt_epoch_is_listed_for_each_generation_that_prepared_it(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)
    scene.prepare(scene.driver(), 0)

    found = scene.command("status", "--json").json

    assert [(p["epoch"], p["generation"], p["rows"]) for p in found["in_doubt"]] == [
        (0, 1, {"directory": len(ROWS)}),
        (0, 2, {"directory": len(ROWS)}),
    ]
    assert [(left["generation"], left["state"], left["rule"]) for left in found["leftovers"]] == [
        (2, "prepared", "keep"),  # what it took the place of is gone
    ]
    assert found["settled"]


def test_a_held_epoch_is_reported_sink_by_sink(scene: Scene) -> None:
    right = scene.target("right")
    driver = scene.driver(scene.target("left"), right)
    scene.decide(driver, 0)
    with going_away(right), pytest.raises(CommitFailed):
        driver.settle()

    found = scene.command("status", "--json").json

    assert found["held"] == [{"epoch": 0, "generation": 1, "sinks": {"left": "visible", "right": "waiting"}}]
    assert not found["settled"]
    (left,) = found["leftovers"]
    assert (left["sink"], left["state"], left["rule"]) == ("right", "decided", "keep")
    assert "epochal recover" in left["why"]
    assert "epochal recover" in scene.command("status").out


def test_a_sealed_attempt_is_not_in_doubt(scene: Scene) -> None:
    target = scene.target()
    scene.stage(scene.driver(target), target, 0)
    scene.driver(target)

    found = scene.command("status", "--json").json

    assert found["in_doubt"] == []
    assert found["generation"]["number"] == 2


def test_a_sink_of_an_older_generation_is_shown_as_former(scene: Scene) -> None:
    scene.run(scene.driver(scene.target("old")), 1)
    scene.driver(scene.target("new"))

    found = scene.command("status", "--json").json

    assert [(sink["name"], sink["current"], sink["last"]) for sink in found["sinks"]] == [
        ("new", True, None),
        ("old", False, 0),
    ]
    assert "old (former)" in scene.command("status").out


def test_a_journal_kept_elsewhere_is_found_by_its_option(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    elsewhere = scene.root / "elsewhere"
    (scene.checkpoint / "epochal").rename(elsewhere)

    assert scene.command("status").code == 2
    assert str(elsewhere) in scene.command("status", "--journal", str(elsewhere)).out


def test_what_a_start_would_refuse_is_reported(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    for file in (scene.root / "directory").glob("0*"):
        file.unlink()

    answer = scene.command("status")

    assert answer.code == 2
    assert "a start would be refused" in answer.out
    assert "the target was emptied" in answer.out


def test_status_writes_nothing(scene: Scene) -> None:
    target = scene.target()
    driver = scene.driver(target)
    scene.run(driver, 1)
    scene.decide(driver, 1)
    (scene.checkpoint / "epochal" / f"{TEMPORARY}x").write_bytes(b"half")
    before = scene.disk()

    found = scene.command("status", "--json").json

    assert scene.disk() == before
    assert found["journal"]["temporary"] == 1


class Unheard(DirectoryParticipant):
    def describe(self) -> dict[str, Json]:
        return {**super().describe(), "type": "unheard-of"}


def test_an_unknown_kind_of_sink_does_not_hide_the_rest(scene: Scene) -> None:
    scene.run(scene.driver(scene.target(), Unheard(str(scene.root / "unheard"), name="unheard")), 1)

    found = scene.command("status", "--json").json

    errors = {sink["name"]: sink["error"] for sink in found["sinks"]}
    assert errors["directory"] is None
    assert "no participant of type 'unheard-of' is installed" in errors["unheard"]


def test_local_paths_load_no_spark(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    program = (
        "import sys; from epochal.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )

    for command in ("status", "recover", "gc"):
        subprocess.run(
            [sys.executable, "-c", program, command, str(scene.checkpoint)],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parents[2],
        )
