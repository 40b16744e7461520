"""A checker that finds nothing proves something only if it finds what is broken on purpose."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from integration_tests.kill_matrix import checker
from integration_tests.kill_matrix.__main__ import play_case
from integration_tests.kill_matrix.broken import BROKEN
from integration_tests.kill_matrix.cases import Case, Point, parse
from integration_tests.kill_matrix.lab import Ending, Lab
from integration_tests.kill_matrix.matrix import Matrix, MatrixResult
from integration_tests.kill_matrix.plans import every_change, met
from integration_tests.kill_matrix.reader import Reader
from integration_tests.kill_matrix.workers import report

SEEN = {
    "checkpoint/2/fresh/after-stage@1/broken:show-at-stage": "early view: left shows epoch 0",
    "eager/2/fresh/after-stage@1/broken:show-at-stage": "early view: left shows epoch 0",
    "checkpoint/1/fresh/before-commits@2/broken:commit-before-spark": "early view: left shows epoch 1",
    "checkpoint/1/fresh/after-write@1/broken:never-abort": "left over: left/_staged",
    "checkpoint/1/fresh/before-decided@1/broken:remove-prepared-attempts": "DataLost",
    "checkpoint/1/fresh/before-done@2/broken:tell-before-done": "the watermark file says epoch 1, and the jour",
    "checkpoint/1/fresh/after-commit@1/broken:publish-under-new-names": "not exactly once: left shows epochs [0, 0,",
    # 1 stages, 2 starts and removes it, 1 records PREPARED and Spark writes commits/0: lost.
    "checkpoint/1/short/hold:after-write@1,before-stage@1/broken:no-fence": "DataLost",
    # 1 has prepared, 2 starts and removes it, Spark writes 1's commits/0: lost.
    "checkpoint/1/short/hold:before-commits@1,before-stage@1/broken:remove-prepared-attempts": "DataLost",
}
SOMEWHERE = {"never-sweep": "left over: checkpoint/epochal/", "move-in-two-steps": "DataLost"}
BY_THREE = "decide-again"


def test_every_rule_that_can_be_broken_is_tried() -> None:
    tried = {parse(text).broken for text in SEEN} | set(SOMEWHERE) | {BY_THREE}

    assert tried == set(BROKEN) - {""}


@pytest.mark.parametrize("text", SEEN)
def test_a_broken_rule_is_seen_and_the_same_history_without_it_is_not(text: str, tmp_path: Path) -> None:
    broken, sound = Matrix(Lab(tmp_path / "broken")), Matrix(Lab(tmp_path / "sound"))
    broken.play(parse(text))
    sound.play(parse(text.partition("/broken:")[0]))

    assert SEEN[text] in _faults_of(broken.result)
    assert not sound.result.faults


@pytest.mark.parametrize("broken", SOMEWHERE)
def test_a_rule_that_matters_between_two_changes_of_the_disk_is_seen(broken: str, tmp_path: Path) -> None:
    matrix = Matrix(Lab(tmp_path))
    for point in met(matrix, Case(parse("checkpoint/1/short").stream), every_change):
        matrix.play(Case(parse("checkpoint/1/short").stream, (point,), broken=broken))
        if matrix.result.faults:
            break

    assert SOMEWHERE[broken] in _faults_of(matrix.result)


@pytest.mark.parametrize(("broken", "shown"), [("", [0, 1]), (BY_THREE, [0, 0])])
def test_three_drivers_show_an_epoch_twice_only_if_a_decision_can_be_changed(
    broken: str, shown: list[int], tmp_path: Path
) -> None:
    """1 picks its own attempt, 2 records another PREPARED, 3 picks that one, then 1 goes on."""
    lab, stream = Lab(tmp_path), parse("checkpoint/1/short").stream
    case = lab.new(stream)
    picks = lab.start(case, stream, holds=[Point("before-commits", 1), Point("before-decided", 1)], broken=broken)
    assert lab.is_held(picks)
    prepares = lab.start(case, stream, holds=[Point("before-prepared", 1)], broken=broken)
    assert lab.is_held(prepares)
    lab.release(picks)
    assert lab.is_held(picks, 1)
    lab.release(prepares)
    assert lab.wait(prepares) is Ending.CONCURRENT_UPDATE
    picks_another = lab.start(case, stream, holds=[Point("before-abort", 1)], broken=broken)
    assert lab.is_held(picks_another)
    lab.release(picks, 1)
    lab.wait(picks)
    lab.release(picks_another)
    lab.wait(picks_another)

    assert checker.shown_epochs(case / "left")[:2] == shown
    assert bool(checker.frozen(case, stream)) is bool(broken)


def test_the_reader_sees_an_epoch_that_is_shown_too_early_for_a_moment(tmp_path: Path) -> None:
    lab, stream = Lab(tmp_path), parse("checkpoint/1/short").stream
    reader = Reader(lab.live, tmp_path / "seen")
    reader.start()
    case = lab.new(stream)
    driver = lab.start(case, stream, holds=[Point("after-stage", 1)], broken="show-at-stage")
    assert lab.is_held(driver)
    deadline = time.monotonic() + 30
    while not reader.seen().faults and time.monotonic() < deadline:
        time.sleep(0.001)
    lab.release(driver)
    lab.wait(driver)

    assert (case.name, "early view: left shows epoch 0, which commits/ does not have") in reader.stop().faults


def test_a_case_that_is_wrong_says_how_to_see_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "checkpoint/1/fresh/after-write@1/broken:never-abort"
    matrix = Matrix(Lab(tmp_path / "first"))
    matrix.play(parse(text))
    command = report(matrix.result).splitlines()[-1]
    code = play_case(command.split()[-1], tmp_path / "again")

    assert command.strip() == f"again: PYTHONPATH=. python -m integration_tests.kill_matrix {text}"
    assert code == 1
    assert "FAULT left over" in capsys.readouterr().out


def _faults_of(result: MatrixResult) -> str:
    return "\n".join(fault for faults in result.faults.values() for fault in faults)
