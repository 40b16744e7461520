"""A frame that does not fit is refused before anything is staged; the table stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import BadRows, DeltaSink, Refused
from integration_tests.delta.tables import ids, numbers, staged_files, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("frame", "faults"),
    [
        ("SELECT 1 id, 'x' word", ["id: int in the frame, bigint in the table"]),
        ("SELECT 1L id", [r"word: the table has it \(string\), the frame does not"]),
        ("SELECT 1L id, 'x' word, 2 more", ["more: not in the table"]),
        ("SELECT '1' id, 2 more", ["id: string in", "word: the table has it", "more: not in the table"]),
        ("SELECT 1L ID, 'x' word", ["spelled alike"]),
    ],
)
def test_wrong_missing_and_extra_columns_are_told_one_by_one(
    spark: SparkSession, tmp_path: Path, frame: str, faults: list[str]
) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table))
    write(sink, 0, numbers(spark, 1))
    for fault in faults:
        with pytest.raises(BadRows, match=fault):
            write(sink, 1, spark.sql(frame))

    assert ids(spark, table) == [1]
    assert staged_files(table) == []


@pytest.mark.parametrize(
    ("frame", "partition_by", "fault"),
    [
        ("SELECT 1L id", ["day"], "partition_by: 'day' is not in the frame"),
        (
            "SELECT 1L id, array(1) tags",
            ["tags"],
            "'tags' is array<int>, a partition needs a plain value",
        ),
        ("SELECT 1L id", ["id"], "at least one of the columns id must not be in it"),
        ("SELECT 1L `order id`", [], "'order id': Delta does not allow any of"),
    ],
)
def test_a_table_that_could_not_be_written_to_is_not_made(
    spark: SparkSession, tmp_path: Path, frame: str, partition_by: list[str], fault: str
) -> None:
    with pytest.raises(BadRows, match=fault):
        write(DeltaSink(str(tmp_path / "table"), partition_by=partition_by), 0, spark.sql(frame))
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_another_partitioning_than_the_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(DeltaSink(str(table)), 0, numbers(spark, 1))

    with pytest.raises(BadRows, match="the table is partitioned by nothing"):
        write(DeltaSink(str(table), partition_by=["word"]), 1, numbers(spark, 2))


def test_a_partition_value_that_is_too_long_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), partition_by=["word"])

    with pytest.raises(BadRows, match="longer than 150 bytes"):
        write(sink, 0, spark.sql("SELECT 1L id, repeat('x', 151) word"))
    assert ids(spark, table) == []


def test_a_folder_of_other_files_is_not_made_a_table(spark: SparkSession, tmp_path: Path) -> None:
    numbers(spark, 1).write.parquet(str(tmp_path / "plain"))

    with pytest.raises(Refused, match="is not a Delta table, and not empty"):
        DeltaSink(str(tmp_path / "plain")).open("7a1f1c9e")
