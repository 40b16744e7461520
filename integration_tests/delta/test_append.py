"""What both readers find in a table is what the stream had, value by value, and no filter hides a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import epochal
from epochal import DeltaSink, EpochWriter, RollingFileSink
from integration_tests.delta.tables import (
    OTHER,
    by_delta,
    by_delta_rs,
    engines,
    files_of,
    ids,
    numbers,
    rows_of,
    write,
)
from integration_tests.spark.queries import run, stream, to_checkpoint
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Each row is a trap for statistics or for the spelling of values.
ROWS = """
SELECT * FROM VALUES
  (1, 1.5D,                   'plain',            DATE'2026-11-16', TIMESTAMP'2026-11-16 10:00:00.123456', 1.10BD, array(1, null), named_struct('a', 1L, 'b', 'x')),
  (2, double('NaN'),          repeat('z', 5000),  DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.999999', -9.99BD, array(),       named_struct('a', -1L, 'b', null)),
  (3, double('Infinity'),     'Grüße 🎉 a/b=c%',   DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999', 0.00BD, null,           null),
  (4, -0.0D,                  repeat('🎉', 40),   null,             null,                                  null,   array(7),       named_struct('a', null, 'b', 'y')),
  (5, null,                   null,               DATE'1582-10-15', TIMESTAMP'2026-03-29 01:30:00',        3.33BD, array(1, 2),    named_struct('a', 5L, 'b', '')),
  (6, double('-Infinity'),    '',                 DATE'2026-01-01', TIMESTAMP'2026-01-01 00:00:00',        7.00BD, array(1),       named_struct('a', 6L, 'b', 'z'))
AS t(id, x, word, day, at, price, tags, inner)
"""  # noqa: E501  # a table is read by its columns
FILTERS = (
    "x > 5",
    "x = double('NaN')",
    "x <= 0",
    "x is null",
    "word > 'y'",
    "word = repeat('z', 5000)",
    "word >= repeat('🎉', 39)",
    "word = ''",
    "day < '1600-01-01'",
    "day = '9999-12-31'",
    "at < '1970-01-01'",
    "at = '2026-11-16 10:00:00.123456'",
    "at > '2026-11-16 10:00:00.123455'",
    "price < 0",
    "price = 1.10",
    "price is null",
    "inner.a = 5",
    "inner.b is null",
    "inner.a < 0",
    "tags is null",
)


def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS).selectExpr("bigint(id) id", "x", "word", "day", "at", "price", "tags", "inner")


def one_file_a_row(spark: SparkSession) -> DataFrame:
    return rows(spark).repartitionByRange(6, "id")


def test_every_value_is_read_back_equal_by_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(DeltaSink(str(table)), 0, one_file_a_row(spark))
    rows(spark).write.format("delta").save(str(tmp_path / "native"))

    assert by_delta(spark, table) == by_delta(spark, tmp_path / "native")
    assert by_delta_rs(table) == by_delta(spark, table)
    assert engines(table) == ["delta-rs", "delta-rs"]


@pytest.mark.parametrize("files", [pytest.param(1, marks=pytest.mark.matrix), 6])
def test_no_filter_hides_a_row(spark: SparkSession, tmp_path: Path, files: int) -> None:
    table = tmp_path / "table"
    write(DeltaSink(str(table)), 0, rows(spark).repartitionByRange(files, "id"))
    plain = rows(spark)

    for condition in FILTERS:
        expected = sorted(row["id"] for row in plain.where(condition).collect())
        found = sorted(json.loads(row)["id"] for row in by_delta(spark, table, condition).elements())
        assert found == expected, condition
        assert expected, f"{condition} selects nothing and so proves nothing"


@pytest.mark.parametrize("column", ["id", "word", "day", "at", "price", "yes"])
def test_partitions_of_every_type_are_read_back_equal(spark: SparkSession, tmp_path: Path, column: str) -> None:
    table = tmp_path / "table"
    # Delta itself makes null of an empty text in a partition.
    # delta-rs does not read a negative decimal of a partition, whoever wrote it.
    short = rows(spark).selectExpr(
        "id", "nullif(left(word, 30), '') word", "day", "at", "abs(price) price", "id > 3 yes"
    )
    write(DeltaSink(str(table), partition_by=[column]), 0, short)

    assert by_delta(spark, table) == by_delta_rs(table)
    assert by_delta(spark, table) == rows_of(short)
    assert DeltaTable(table).metadata().partition_columns == [column]


@pytest.mark.parametrize("values", ["1.0D, double('NaN')", "double('NaN'), 1.0D", "1.0D, double('NaN'), 2.0D"])
def test_a_nan_among_other_numbers_is_found_as_the_largest(spark: SparkSession, tmp_path: Path, values: str) -> None:
    table = tmp_path / "table"
    write(DeltaSink(str(table)), 0, spark.sql(f"SELECT explode(array({values})) x").coalesce(1))

    assert spark.read.format("delta").load(str(table)).where("x > 100").count() == 1
    assert 'maxValues\\":{}' in (table / "_delta_log" / f"{1:020d}.json").read_text()


def test_dates_of_the_old_calendar_are_found_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    table, key = tmp_path / "table", "spark.sql.parquet.datetimeRebaseModeInWrite"
    spark.conf.set(key, "LEGACY")
    try:
        write(DeltaSink(str(table)), 0, spark.sql("SELECT DATE'1000-01-01' day"))
        kept = spark.conf.get(key)
    finally:
        spark.conf.unset(key)

    assert spark.read.format("delta").load(str(table)).where("day = '1000-01-01'").count() == 1
    assert kept == "LEGACY"


def test_a_partition_value_never_becomes_a_path(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    frame = spark.createDataFrame([(1, "../../x"), (2, "a/b"), (3, "%2F")], "id long, word string")
    write(DeltaSink(str(table), partition_by=["word"]), 0, frame)

    assert {file.name for file in tmp_path.iterdir()} == {"table"}
    assert {name[:5] for name in files_of(table)} == {"part-"}
    assert ids(spark, table) == [1, 2, 3]


def test_two_sinks_of_a_stream_show_the_same_epochs(spark: SparkSession, world: World) -> None:
    world.feed(3)
    table = DeltaSink(str(world.first), partition_by=["word", "kind"])  # in no order of the alphabet
    run(spark, world, table, RollingFileSink(str(world.second)))
    found = DeltaTable(world.first).to_pyarrow_table().to_pylist()

    assert sorted(row["id"] for row in found) == sorted(row[0] for row in all_rows(3))
    assert [epoch.rows for epoch in epochal.published(str(world.second))] == [6, 6, 6]
    assert set(engines(world.first)) == {"delta-rs"}


def test_an_epoch_leads_to_its_version(spark: SparkSession, world: World) -> None:
    world.feed(3)
    writer = EpochWriter(DeltaSink(str(world.first)))
    query = writer.start(to_checkpoint(stream(spark, world), world))
    query.awaitTermination()
    version = epochal.epoch_version(str(world.first), query.id, 1)
    then = spark.read.format("delta").option("versionAsOf", version).load(str(world.first))
    notes = spark.sql(f"DESCRIBE HISTORY delta.`{world.first}`").select("version", "userMetadata").collect()

    assert then.count() == len(all_rows(2))
    assert {row["version"]: json.loads(row["userMetadata"])["epoch"] for row in notes if row["userMetadata"]} == {
        1: 0,
        2: 1,
        3: 2,
    }
    with pytest.raises(epochal.Refused, match="no epoch 9"):
        epochal.epoch_version(str(world.first), query.id, 9)


def test_an_empty_epoch_is_remembered_and_adds_no_file(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table))
    write(sink, 0, numbers(spark, 1))
    write(sink, 1, numbers(spark).limit(0))

    assert ids(spark, table) == [1]
    assert sink.open("7a1f1c9e-0000-4000-8000-000000000001").last == 1
    assert len(files_of(table)) == 1


def test_two_streams_may_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(3):
        write(DeltaSink(str(table)), number, numbers(spark, number))
        write(DeltaSink(str(table)), number, numbers(spark, 10 + number), lineage=OTHER)

    assert ids(spark, table) == [0, 1, 2, 10, 11, 12]


def test_the_log_gets_a_checkpoint_on_deltas_own_interval(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), properties={"delta.checkpointInterval": "3"})
    frame = numbers(spark, 1).cache()
    for number in range(7):
        write(sink, number, frame)
    made = {file.name[:20] for file in (table / "_delta_log").glob("*.checkpoint*.parquet")}

    assert made == {f"{version:020d}" for version in (3, 6)}
    assert ids(spark, table) == [1] * 7
