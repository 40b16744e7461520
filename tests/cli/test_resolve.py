"""`epochal resolve`: every way that is allowed, and every refusal with its reason."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from epochal.cli import resolve
from epochal.testing import DirectoryParticipant
from epochal.txn.errors import FencedOut
from epochal.txn.journal import Journal
from epochal.txn.recovery import fence
from epochal.txn.resolution import ResolutionFacts
from tests.cli.scene import ROWS, Scene, dying, elsewhere, going_away


def refused(scene: Scene, *options: str) -> str:
    """Run the command, which must refuse and change nothing; its reason."""
    before = scene.disk()

    answer = scene.command("resolve", *options)

    assert answer.code == 2, answer.out
    assert scene.disk() == before
    assert "Nothing was changed" in answer.err
    return answer.err


def test_commit_of_a_checkpointed_epoch_is_what_recover_does(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)

    answer = scene.command("resolve", "--commit", "1")

    assert answer.code == 0
    assert "epoch 1 is visible in every sink" in answer.out
    assert scene.target().rows() == [*ROWS, *ROWS]
    assert scene.command("status", "--json").json["settled"]


def test_commit_of_a_visible_epoch_does_nothing(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    before = scene.disk()

    answer = scene.command("resolve", "--commit", "1", "--json")

    assert (answer.code, answer.json["resolution"], answer.json["commits"]) == (0, "nothing", [])
    assert scene.disk() == before


def test_commit_of_an_epoch_in_doubt_is_refused_because_spark_would_replay_it(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    scene.prepare(driver, 1)

    reason = refused(scene, "--commit", "1")

    assert "Spark has not written commits/1, and only that file decides" in reason
    assert "Start the query: it replays the epoch and commits it" in reason


def test_commit_of_an_epoch_that_was_only_being_staged_is_refused(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    assert "no driver has staged all of it" in refused(scene, "--commit", "1")


def undecided_eager(scene: Scene) -> DirectoryParticipant:
    """A driver with commit="eager" that died between PREPARED and DECIDED of epoch 1."""
    target = scene.target()
    with dying():
        driver = scene.driver(target, eager=True)
    scene.run(driver, 1)
    with patch.object(Journal, "decide", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        scene.prepare(driver, 1)
    return target


def test_commit_finishes_what_an_eager_driver_would_have_decided_and_the_replay_is_skipped(scene: Scene) -> None:
    target = undecided_eager(scene)
    assert target.epochs() == [0]

    answer = scene.command("resolve", "--commit", "1", "--json")

    assert (answer.code, answer.json["resolution"]) == (0, "decide")
    assert target.epochs() == [0, 1]
    scene.run(scene.driver(target, eager=True), 3)
    assert target.rows() == [*ROWS] * 3


def test_commit_of_an_eager_epoch_whose_driver_was_superseded_is_refused(scene: Scene) -> None:
    target = undecided_eager(scene)
    scene.driver(target, eager=True)

    assert "generation 2 has taken over and stages it again" in refused(scene, "--commit", "1")


def test_commit_of_an_eager_epoch_decides_for_the_attempt_it_has_checked_though_a_driver_starts_meanwhile(
    scene: Scene,
) -> None:
    target = undecided_eager(scene)
    facts = resolve._facts

    def meanwhile(*arguments: object) -> ResolutionFacts:
        found = facts(*arguments)  # type: ignore[arg-type]
        scene.driver(target, eager=True)
        return found

    with patch.object(resolve, "_facts", meanwhile):
        assert scene.command("resolve", "--commit", "1").code == 0

    assert scene.journal.read().decided[1] == 1
    scene.run(scene.driver(target, eager=True), 3)
    assert target.rows() == [*ROWS] * 3


def test_commit_of_an_eager_epoch_from_other_offsets_is_refused(scene: Scene) -> None:
    undecided_eager(scene)
    (scene.checkpoint / "offsets" / "1").write_text('{"epoch": "another"}')

    assert "nothing proves that Spark would replay it with the rows that are staged" in refused(scene, "--commit", "1")


def test_commit_of_an_eager_epoch_whose_target_belongs_to_a_copy_is_refused(scene: Scene) -> None:
    undecided_eager(scene)
    with patch.object(resolve, "why_not_ours", return_value="a copy has claimed it"):
        reason = refused(scene, "--commit", "1")

    assert "TwoJournals" in reason
    assert "a copy has claimed it" in reason


@pytest.mark.parametrize("option", ["--commit", "--abort"])
def test_an_epoch_that_spark_has_not_begun_is_refused(scene: Scene, option: str) -> None:
    scene.run(scene.driver(), 2)

    assert "there is no epoch 2: the last one that it has begun is 1" in refused(scene, option, "2")


@pytest.mark.parametrize("option", ["--commit", "--abort"])
def test_an_epoch_older_than_the_journal_is_refused(scene: Scene, option: str) -> None:
    (scene.checkpoint / "commits").mkdir(parents=True)
    (scene.checkpoint / "commits" / "6").write_bytes(b"v1\n{}")
    scene.driver()

    assert "older than this journal, which begins with epoch 7" in refused(scene, option, "3")


def test_abort_of_an_epoch_that_a_dead_driver_was_staging_lets_the_next_start_replay_it(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    answer = scene.command("resolve", "--abort", "1", "--json")

    assert answer.code == 0, answer.err
    assert (answer.json["resolution"], answer.json["fenced_by"]) == ("fence, then remove", 2)
    assert answer.json["removed"] == [{"sink": "directory", "generation": 1}]
    assert target.leftovers(driver.lineage) == []
    with pytest.raises(FencedOut):  # a driver that was not dead after all can do no harm
        scene.prepare(driver, 1)
    scene.run(scene.driver(target), 3)
    assert target.rows() == [*ROWS] * 3


def test_abort_of_what_superseded_drivers_staged_needs_no_fence(scene: Scene) -> None:
    target = scene.target()
    first = scene.driver(target)
    scene.run(first, 1)
    second = scene.driver(target)
    scene.stage(first, target, 1)

    answer = scene.command("resolve", "--abort", "1", "--json")

    assert (answer.code, answer.json["resolution"], answer.json["fenced_by"]) == (0, "remove", None)
    assert target.leftovers(first.lineage) == []
    scene.run(second, 2)  # the live driver goes on
    assert target.rows() == [*ROWS] * 2


def test_abort_removes_nothing_of_other_epochs(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)
    scene.stage(driver, target, 2)

    scene.command("resolve", "--abort", "2")

    assert [attempt.epoch for attempt in target.leftovers(driver.lineage)] == [1]


def test_abort_of_an_epoch_of_which_nothing_is_staged_does_nothing(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    (scene.checkpoint / "offsets" / "1").write_text("{}")
    before = scene.disk()

    answer = scene.command("resolve", "--abort", "1")

    assert answer.code == 0
    assert "nothing of epoch 1 is staged; the next start of the query replays it" in answer.out
    assert scene.disk() == before


def test_abort_of_an_epoch_in_doubt_is_refused_because_it_may_be_the_only_copy(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    scene.prepare(driver, 1)

    reason = refused(scene, "--abort", "1")

    assert "Spark may still write commits/1, and then these are the only copies of its rows" in reason
    assert "Start the query: it replays the epoch" in reason


def test_abort_of_a_checkpointed_epoch_is_refused_because_its_rows_would_be_lost(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)

    assert "Spark has checkpointed it and never gives its rows again" in refused(scene, "--abort", "1")
    assert "Every sink shows it" in refused(scene, "--abort", "0")


def test_abort_of_a_decided_epoch_of_an_eager_driver_is_refused(scene: Scene) -> None:
    with dying():
        driver = scene.driver(eager=True)
    scene.run(driver, 1)
    scene.prepare(driver, 1)

    assert "it is decided, and sinks may show it already" in refused(scene, "--abort", "1")


def test_abort_of_what_a_live_driver_stages_is_refused(scene: Scene) -> None:
    target = scene.target()
    driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    reason = refused(scene, "--abort", "1")

    assert "is alive and stages it" in reason
    assert "epochal gc CHECKPOINT --fence --yes" in reason


def test_abort_is_refused_while_the_death_of_the_driver_is_not_proven(scene: Scene) -> None:
    target = scene.target()
    with elsewhere():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    assert "its driver (pid 1 on elsewhere) is not proven to be dead" in refused(scene, "--abort", "1")


def test_abort_does_not_stop_a_driver_that_starts_meanwhile(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)
    facts, started = resolve._facts, []

    def meanwhile(*arguments: object) -> ResolutionFacts:
        found = facts(*arguments)  # type: ignore[arg-type]
        started.append(scene.driver(target))
        return found

    with patch.object(resolve, "_facts", meanwhile):
        answer = scene.command("resolve", "--abort", "1")

    assert answer.code == 2
    assert "generation 2 was started while this command ran" in answer.err
    scene.run(started[0], 3)
    assert target.rows() == [*ROWS] * 3


def test_abort_keeps_what_a_driver_prepares_while_it_runs(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    def late(*arguments: object, **options: object) -> int:
        scene.prepare(driver, 1)  # it was only stalled
        return fence(*arguments, **options)  # type: ignore[arg-type]

    with patch.object(resolve, "fence", late):
        answer = scene.command("resolve", "--abort", "1")

    assert answer.code == 2
    assert "was staged completely while this command ran" in answer.err
    (scene.checkpoint / "commits" / "1").write_bytes(b"v1\n{}")
    scene.command("recover")
    assert target.rows() == [*ROWS] * 2


def test_a_store_that_does_not_answer_is_exit_code_1(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.decide(driver, 1)

    with going_away(DirectoryParticipant):
        assert scene.command("resolve", "--commit", "1", "--timeout", "0").code == 1
    with patch.object(DirectoryParticipant, "leftovers", side_effect=ConnectionRefusedError("nobody listens")):
        answer = scene.command("resolve", "--abort", "1")
    assert answer.code == 1
    assert "does not answer: nobody listens" in answer.err


@pytest.mark.parametrize("options", [[], ["--commit", "1", "--abort", "1"], ["--commit", "-1"], ["--abort", "x"]])
def test_exactly_one_of_commit_and_abort_is_needed(scene: Scene, options: list[str]) -> None:
    with pytest.raises(SystemExit, match="64"):
        scene.command("resolve", *options)
