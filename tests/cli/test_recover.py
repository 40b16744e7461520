from __future__ import annotations

from collections.abc import Iterator

import pytest

from epochal.testing import DirectoryParticipant
from epochal.txn import failpoints
from tests.cli.scene import ROWS, Scene, going_away


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_an_epoch_that_spark_checkpointed_is_finished(scene: Scene) -> None:
    scene.decide(scene.driver(), 0)

    answer = scene.command("recover", "--json")

    assert answer.code == 0
    assert answer.json["commits"] == [{"epoch": 0, "generation": 1, "sink": "directory", "outcome": "committed"}]
    assert (answer.json["settled"], answer.json["done"]) == (True, 0)
    assert scene.target().rows() == list(ROWS)
    assert scene.command("status", "--json").json["settled"]


def test_progress_is_shown_epoch_by_epoch_and_sink_by_sink(scene: Scene) -> None:
    scene.decide(scene.driver(scene.target("left"), scene.target("right")), 0)

    answer = scene.command("recover")

    assert answer.out.splitlines()[:3] == [
        "1 epoch to finish: 0",
        "  epoch 0  left  committed",
        "  epoch 0  right  committed",
    ]


def test_recover_claims_no_generation_so_a_live_driver_goes_on(scene: Scene) -> None:
    driver = scene.driver()
    scene.decide(driver, 0)

    scene.command("recover")
    scene.run(driver, 3)

    assert scene.journal.read().generation == 1
    assert scene.target().epochs() == [0, 1, 2]


def test_an_epoch_in_doubt_is_left_alone_and_named(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    scene.prepare(driver, 1)
    before = scene.disk()

    answer = scene.command("recover")

    assert answer.code == 0
    assert "nothing to do" in answer.out
    assert "epoch 1 left as it is" in answer.out
    watermark = "checkpoint/epochal-cut/000000000000.json"  # which a driver without a settler has not written
    assert {path: data for path, data in scene.disk().items() if path != watermark} == before
    assert watermark in scene.disk()


def test_losers_of_a_decided_epoch_are_removed(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)
    scene.decide(scene.driver(), 0)

    scene.command("recover")

    assert scene.target().epochs() == [0]
    assert scene.command("status", "--json").json["leftovers"] == []


def test_a_sink_that_the_newest_driver_no_longer_has_gets_its_epoch(scene: Scene) -> None:
    scene.decide(scene.driver(scene.target("old")), 0)
    scene.driver(scene.target("new"))

    assert scene.command("recover").code == 0
    assert scene.target("old").rows() == list(ROWS)


def test_a_sink_whose_path_was_changed_gets_its_epoch_where_it_was_staged(scene: Scene) -> None:
    first = DirectoryParticipant(str(scene.root / "first"), name="orders")
    second = DirectoryParticipant(str(scene.root / "second"), name="orders")
    scene.decide(scene.driver(first), 0)
    scene.driver(second)

    assert scene.command("recover").code == 0
    assert (first.rows(), second.rows()) == (list(ROWS), [])


def test_a_store_that_answers_the_second_time_is_waited_for(scene: Scene) -> None:
    scene.decide(scene.driver(), 0)
    failpoints.arm("before-rename=raise@1")

    answer = scene.command("recover", "--timeout", "30")

    assert answer.code == 0
    assert scene.target().rows() == list(ROWS)


@pytest.mark.parametrize("broken", ["commit", "open"])
def test_a_store_that_stays_away_is_exit_code_1_and_loses_nothing(
    scene: Scene, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.decide(scene.driver(), 0)

    def away(*_: object) -> None:
        raise ConnectionRefusedError("nobody listens")

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryParticipant, broken, away)
        answer = scene.command("recover", "--timeout", "0")

    assert answer.code == 1
    assert "nobody listens" in answer.err
    assert "The epoch is decided and safe" in answer.err
    assert "Traceback" not in answer.err
    assert scene.command("recover").code == 0
    assert scene.target().rows() == list(ROWS)


def test_what_a_start_would_refuse_is_refused_here_too(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 2)
    scene.decide(driver, 2)
    for file in (scene.root / "directory").glob("0*"):
        file.unlink()

    answer = scene.command("recover")

    assert answer.code == 2
    assert "the target was emptied" in answer.err
    assert scene.target().rows() == []


def test_a_sink_of_an_unknown_kind_is_refused_by_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    target = scene.target()
    description = {**target.describe(), "type": "unheard-of"}
    monkeypatch.setattr(target, "describe", lambda _rows: description)
    scene.decide(scene.driver(target), 0)

    answer = scene.command("recover")

    assert answer.code == 2
    assert "no participant of type 'unheard-of' is installed" in answer.err


def test_an_epoch_that_the_journal_lost_is_refused_not_passed_over(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)
    (scene.checkpoint / "epochal" / "e000000000001.g000001.json").unlink()

    answer = scene.command("recover")

    assert answer.code == 2
    assert "epoch 1" in answer.err
    assert "no record of it" in answer.err


def test_an_eager_decision_is_finished_without_sparks_word(scene: Scene) -> None:
    scene.prepare(scene.driver(eager=True), 0)

    assert scene.command("recover").code == 0
    assert scene.target().rows() == list(ROWS)


def test_a_store_that_was_away_for_the_driver_is_finished_by_recover(scene: Scene) -> None:
    driver = scene.driver(scene.target("left"), scene.target("right"))
    scene.decide(driver, 0)
    with going_away(DirectoryParticipant):
        assert scene.command("recover", "--timeout", "0").code == 1

    outcomes = scene.command("recover", "--json").json["commits"]

    assert [(o["sink"], o["outcome"]) for o in outcomes] == [("left", "committed"), ("right", "committed")]
