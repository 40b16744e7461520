"""What is staged is all that Spark wrote, in every format, and on stable storage, before the epoch can be decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import DeltaSink, Refused, Rolling, RollingFileSink
from epochal.sinks.delta.options import Mode
from epochal.sinks.files.options import Format
from epochal.sinks.spark import write_counts
from epochal.txn.model import Attempt
from integration_tests.spark.checks import visible_files
from integration_tests.spark.epochs import LINEAGE, stage_frame
from tests.txn.syncs import Synced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.txn.participant import Participant

pytestmark = pytest.mark.spark

FORMATS = ["parquet", "orc", "avro", "json", "csv", "text", "xml"]
ATTEMPT = Attempt(LINEAGE, 0, 1)


def two_files(spark: SparkSession, format_: Format = "parquet") -> DataFrame:
    columns = ("string(id) AS word",) if format_ == "text" else ("id", "string(id) AS word")
    return spark.range(0, 100, numPartitions=2).selectExpr(*columns)


def meddling(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None], when: str = "after-write") -> None:
    """Have something done between Spark's write and the look at what it wrote."""
    monkeypatch.setattr("epochal.txn.failpoints.hit", lambda name: what() if name == when else None)


def losing(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    def lose() -> None:
        staged(target)[0].unlink()

    meddling(monkeypatch, lose)


def staged(target: Path) -> list[Path]:
    found = sorted((target / "_epochal" / "staged").rglob("part-*"))
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("format_", FORMATS)
def test_a_staged_file_that_is_gone_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format
) -> None:
    sink = RollingFileSink(str(tmp_path), format=format_, options={"rowTag": "row"} if format_ == "xml" else {})
    losing(monkeypatch, tmp_path)

    with pytest.raises(Refused, match=r"not all of them.*the same file system.*Nothing of the epoch was published"):
        stage_frame(sink, ATTEMPT, two_files(spark, format_))
    assert visible_files(tmp_path) == []


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_a_staged_file_that_is_cut_short_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format
) -> None:
    def cut() -> None:
        file = staged(tmp_path)[0]
        file.write_bytes(file.read_bytes()[:-1])

    sink = RollingFileSink(str(tmp_path), format=format_)
    meddling(monkeypatch, cut)

    with pytest.raises(Refused, match="not all of them"):
        stage_frame(sink, ATTEMPT, two_files(spark))


@pytest.mark.parametrize("format_", ["orc", "json"])
def test_a_piece_of_an_open_part_that_is_gone_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format
) -> None:
    sink = RollingFileSink(str(tmp_path), format=format_, rolling=Rolling(max_bytes="1 MB"))
    losing(monkeypatch, tmp_path)

    with pytest.raises(Refused, match="not all of them"):
        stage_frame(sink, ATTEMPT, two_files(spark))


def test_a_merged_file_that_is_gone_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        (merged,) = (tmp_path / "_epochal" / "staged").rglob("merged-0/*/part-*")
        merged.unlink()

    sink = RollingFileSink(str(tmp_path), format="orc", rolling=Rolling(max_rows=100))
    meddling(monkeypatch, lose, "after-merge")

    with pytest.raises(Refused, match=r"the 100 rows of 1 parts that Spark merged .* not all of them"):
        stage_frame(sink, ATTEMPT, two_files(spark))


@pytest.mark.parametrize("digest", [False, True])
def test_a_file_of_a_bucket_that_is_gone_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, digest: bool
) -> None:
    frame = two_files(spark).selectExpr("*", "id % 3 AS third").repartition(2, "id")  # planned anew while it runs
    sink = RollingFileSink(str(tmp_path), format="json", bucket_by=["third"], max_rows_per_file=10, digest=digest)
    losing(monkeypatch, tmp_path)

    with pytest.raises(Refused, match="not all of them"):
        stage_frame(sink, ATTEMPT, frame)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_staged_file_of_a_table_that_is_gone_refuses_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    frame = two_files(spark)
    sink = DeltaSink(str(tmp_path), mode=mode, keys=["id"] if mode == "upsert" else [])
    losing(monkeypatch, tmp_path)

    with pytest.raises(Refused, match=r"not all are there.*the same file system.*Nothing of the epoch was written"):
        stage_frame(sink, ATTEMPT, frame)
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("bucketed", [False, True])
def test_an_epoch_without_rows_has_no_files(
    spark: SparkSession, tmp_path: Path, format_: Format, *, bucketed: bool
) -> None:
    sink = RollingFileSink(
        str(tmp_path),
        format=format_,
        bucket_by=["word"] if bucketed and format_ != "text" else [],
        options={"rowTag": "row"} if format_ == "xml" else {},
    )
    found = stage_frame(sink, ATTEMPT, two_files(spark, format_).where("false"))
    sink.commit(ATTEMPT, found.handle)

    assert found.rows == 0
    assert visible_files(tmp_path) == []


def test_a_task_that_goes_on_after_its_job_finds_nothing_to_replace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path] = []  # the folders that Spark's tasks were told to write to
    let_write = write_counts.written

    def noted(frame: DataFrame, folder: str, *others: Any) -> write_counts.Written:
        given.append(Path(folder.removeprefix("file:")))
        return let_write(frame, folder, *others)

    def replace_and_remove() -> None:
        """What a late task does there: it replaces one file, and removes another before it finds its own gone."""
        first, second, *_ = (given[0] / file.name for file in staged(tmp_path))
        first.parent.mkdir(exist_ok=True)
        first.write_text("late\n")
        second.unlink(missing_ok=True)

    monkeypatch.setattr(write_counts, "written", noted)
    meddling(monkeypatch, replace_and_remove)
    sink = RollingFileSink(str(tmp_path), format="json")
    found = stage_frame(sink, ATTEMPT, two_files(spark))
    sink.commit(ATTEMPT, found.handle)

    assert found.rows == spark.read.json(str(tmp_path)).count() == 100
    assert not (tmp_path / "_epochal" / "staged" / LINEAGE / ATTEMPT.key).exists()


def test_an_epoch_that_is_staged_again_has_the_rows_of_the_last_try(spark: SparkSession, tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path), format="json")
    stage_frame(sink, ATTEMPT, two_files(spark).where("id < 50"))
    found = stage_frame(sink, ATTEMPT, two_files(spark))
    sink.commit(ATTEMPT, found.handle)

    assert spark.read.json(str(tmp_path)).count() == 100


@pytest.mark.parametrize("kind", ["files", "marked", "rolled", "delta"])
def test_every_folder_that_leads_to_a_staged_file_is_synced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sinks: dict[str, Participant[DataFrame]] = {
        "files": RollingFileSink(str(tmp_path), bucket_by=["third"]),
        "marked": RollingFileSink(str(tmp_path), format="json", marker="epoch", bucket_by=["third"]),
        "rolled": RollingFileSink(str(tmp_path), format="csv", rolling=Rolling(max_bytes=1), bucket_by=["third"]),
        "delta": DeltaSink(str(tmp_path), partition_by=["third"]),
    }
    synced = Synced(monkeypatch.setattr)
    stage_frame(sinks[kind], ATTEMPT, two_files(spark).selectExpr("*", "id % 3 AS third"))

    left = [path for path in (tmp_path / "_epochal" / "staged").rglob("*") if not path.name.startswith((".", "_"))]
    folders = {path.parent for path in left if path.is_file()}
    above = {folder for path in folders for folder in path.parents if folder.is_relative_to(tmp_path)}
    assert len(left) > 4
    assert {str(folder) for folder in folders | above} <= set(synced.paths)
    assert {str(path) for path in left if path.is_file() and "marker" not in path.name} <= set(synced.paths)
