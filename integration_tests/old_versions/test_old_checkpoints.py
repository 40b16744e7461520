"""What an older epochal has left on disk is finished by this one: killed drivers' checkpoints, journals and targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import epochal.cli
from integration_tests.old_versions.moving import unpack
from integration_tests.old_versions.streams import ROWS, Place, rows_of, seen, sinks_of, to_checkpoint
from integration_tests.spark.checks import leftovers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.glob("v*"))


@pytest.fixture(params=VERSIONS)
def archives(request: pytest.FixtureRequest) -> Path:
    """The archives of one old version."""
    return HERE / str(request.param)


def unpacked(archives: Path, name: str, root: Path) -> Place:
    place = Place(root.resolve() / "stream")
    unpack(archives / f"{name}.tar.gz", place.root)
    return place


def go_on(spark: SparkSession, place: Place) -> int:
    """What was planned before, and one epoch more; how many epochs there are then."""
    before = planned(place)
    query = epochal.EpochWriter(*sinks_of(place)).start(to_checkpoint(spark, place).trigger(availableNow=True))
    query.awaitTermination()
    return before + 2


def numbers(folder: Path) -> list[int]:
    """The epochs in Spark's offsets/ or commits/."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def planned(place: Place) -> int:
    return numbers(place.checkpoint / "offsets")[-1]


def checkpointed(place: Place) -> int:
    return numbers(place.checkpoint / "commits")[-1]


def names(place: Place, pattern: str) -> list[str]:
    """Records of the journal."""
    return sorted(path.name for path in place.journal.glob(pattern))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command answers."""
    capsys.readouterr()
    code = epochal.cli.main([*arguments, "--json"])
    answer = capsys.readouterr()

    assert code == 0, answer
    return json.loads(answer.out)


def audited(capsys: pytest.CaptureFixture[str], place: Place) -> dict[str, tuple[str, int]]:
    answer = ask(capsys, "audit", str(place.checkpoint))
    return {sink["name"]: (sink["verdict"], sink["rows"]["found"]) for sink in answer["sinks"]}


def check_at_the_end(capsys: pytest.CaptureFixture[str], place: Place, *, epochs: int) -> None:
    """Every row of the epochs once in every sink, also by the audit, and nothing left over."""
    found = audited(capsys, place)  # open parts are looked into as well
    ask(capsys, "roll", str(place.checkpoint))

    assert checkpointed(place) == planned(place) == epochs - 1
    assert found == dict.fromkeys(place.targets, ("exact", epochs * ROWS))
    for name, target in place.targets.items():
        assert seen(target) == rows_of(epochs), name
        assert leftovers(target) == [], name


def test_an_epoch_that_an_old_driver_left_in_doubt_is_staged_anew_and_both_old_attempts_are_removed(
    spark: SparkSession, archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unpacked(archives, "in-doubt", tmp_path)
    epoch = planned(place)
    attempts = names(place, f"e{epoch:012d}*")

    assert checkpointed(place) == epoch - 1
    assert len(attempts) == 2
    check_at_the_end(capsys, place, epochs=go_on(spark, place))


def test_an_old_epoch_that_spark_has_checkpointed_is_committed_from_its_record_by_recover(
    spark: SparkSession, archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unpacked(archives, "checkpointed", tmp_path)
    epoch = checkpointed(place)
    (attempt,) = names(place, f"e{epoch:012d}*")  # neither decided nor done
    recovered = ask(capsys, "recover", str(place.checkpoint))
    found = audited(capsys, place)

    assert attempt == f"e{epoch:012d}.g000005.json"
    assert {(commit["epoch"], commit["outcome"]) for commit in recovered["commits"]} == {(epoch, "committed")}
    assert len(recovered["commits"]) == len(place.targets)
    assert found == dict.fromkeys(place.targets, ("exact", (epoch + 1) * ROWS))
    check_at_the_end(capsys, place, epochs=go_on(spark, place))


def test_an_old_epoch_that_two_sinks_of_five_have_committed_is_committed_in_the_others(
    spark: SparkSession, archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unpacked(archives, "half-committed", tmp_path)
    epoch = checkpointed(place)
    committed = {path.parents[3].name for path in place.root.glob(f"*/_epochal/manifest/*/{epoch:012d}.json")}

    assert names(place, f"e{epoch:012d}.d*") == [f"e{epoch:012d}.decided.json"]
    assert committed == {"hours", "lines"}
    check_at_the_end(capsys, place, epochs=go_on(spark, place))


def test_parts_that_an_old_command_has_recorded_as_closed_are_published(
    spark: SparkSession, archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unpacked(archives, "roll-recorded", tmp_path)
    epoch = checkpointed(place)
    open_before = {name for name, target in place.targets.items() if seen(target) != rows_of(epoch + 1)}
    ask(capsys, "recover", str(place.checkpoint))
    open_after = {name for name, target in place.targets.items() if seen(target) != rows_of(epoch + 1)}

    assert names(place, "r*.done.json") != []
    assert open_before == {"lines", "merged", "hours"}
    assert open_after == set()
    check_at_the_end(capsys, place, epochs=go_on(spark, place))
