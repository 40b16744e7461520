"""Complete, upsert and evolving tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import BadRows, DeltaSink, EpochWriter, Refused, RollingFileSink
from epochal.txn.model import Outcome
from integration_tests.delta.tables import (
    attempt,
    by_delta,
    by_delta_rs,
    engines,
    ids,
    make,
    numbers,
    staged,
    write,
)
from integration_tests.spark.checks import visible_rows
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def table_rows(spark: SparkSession, path: Path) -> list[dict[str, object]]:
    found = by_delta(spark, path)
    assert by_delta_rs(path) == found
    return sorted((json.loads(row) for row in found.elements()), key=lambda row: row["id"])


def test_complete_replaces_what_is_there_whoever_wrote_it(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), mode="complete", partition_by=["word"])
    write(sink, 0, numbers(spark, 1, 2))
    handle = staged(sink, attempt(1), numbers(spark, 3))
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (99, 'late')")
    sink.commit(attempt(1), handle)

    assert ids(spark, table) == [3]
    assert sink.commit(attempt(1), handle) is Outcome.ALREADY_COMMITTED
    assert engines(table)[0] == "delta-rs"


@pytest.mark.parametrize("word", ["a b", "ü", "50%", "a:b/c"])
def test_complete_replaces_files_whose_names_need_escaping(spark: SparkSession, tmp_path: Path, word: str) -> None:
    table = tmp_path / "table"
    old = spark.createDataFrame([(1, word)], "id long, word string")
    old.write.format("delta").partitionBy("word").save(str(table))
    write(DeltaSink(str(table), mode="complete"), 0, numbers(spark, 2))

    assert ids(spark, table) == [2]


def test_a_table_made_append_only_meanwhile_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), mode="complete")
    write(sink, 0, numbers(spark, 1))
    handle = staged(sink, attempt(1), numbers(spark, 2))
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly'='true')")

    with pytest.raises(Refused, match="Delta refuses its rows"):
        sink.commit(attempt(1), handle)
    assert ids(spark, table) == [1]


def test_complete_with_a_change_data_feed_goes_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, word string", properties=("'delta.enableChangeDataFeed'='true'",))
    sink = DeltaSink(str(table), mode="complete")
    write(sink, 0, numbers(spark, 1))
    write(sink, 1, numbers(spark, 2))
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(str(table))

    assert ids(spark, table) == [2]
    assert sorted((r["id"], r["_change_type"]) for r in feed.collect()) == [(1, "delete"), (1, "insert"), (2, "insert")]


def test_complete_shows_the_totals_of_a_stateful_query(spark: SparkSession, world: World) -> None:
    world.feed(3)
    totals = stream(spark, world).groupBy("word").count()
    EpochWriter(DeltaSink(str(world.first), mode="complete")).start(
        to_checkpoint(totals, world, "complete")
    ).awaitTermination()
    expected: dict[str, int] = {}
    for row in all_rows(3):
        expected[row[3]] = expected.get(row[3], 0) + 1
    found = {row["word"]: row["count"] for row in spark.read.format("delta").load(str(world.first)).collect()}

    assert found == expected


def changes(spark: SparkSession, *rows: tuple[int, str, int, str]) -> DataFrame:
    return spark.createDataFrame(rows, "id long, word string, at long, op string").coalesce(1)


def upserting(path: Path) -> DeltaSink:
    return DeltaSink(str(path), mode="upsert", keys=["id"], order_by=["at"], delete_when="op = 'D'", drop=["at", "op"])


def test_upsert_updates_inserts_and_deletes_by_key_and_the_last_row_wins(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = upserting(table)
    write(sink, 0, changes(spark, (1, "a", 1, "U"), (2, "b", 1, "U"), (3, "c", 1, "U")))
    write(
        sink,
        1,
        changes(spark, (1, "old", 2, "U"), (1, "new", 3, "U"), (2, "b", 2, "D"), (4, "d", 1, "U"), (5, "e", 1, "D")),
    )
    handle = staged(sink, attempt(2), changes(spark, (3, "z", 9, "U")))
    sink.commit(attempt(2), handle)

    assert table_rows(spark, table) == [{"id": 1, "word": "new"}, {"id": 3, "word": "z"}, {"id": 4, "word": "d"}]
    assert sink.commit(attempt(2), handle) is Outcome.ALREADY_COMMITTED


def test_rows_of_which_the_last_of_each_key_wins_go_whole_to_the_sink_beside(spark: SparkSession, world: World) -> None:
    world.feed(2)
    last = DeltaSink(str(world.table), mode="upsert", keys=["word"], order_by=["id"])
    beside = RollingFileSink(str(world.second), format="json")
    EpochWriter(last, beside).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    rows = all_rows(2)
    expected = {word: max(id_ for id_, _, _, other in rows if other == word) for *_, word in rows}
    table = spark.read.format("delta").load(str(world.table))
    assert {row["word"]: row["id"] for row in table.collect()} == expected
    assert set(table.columns) == {"id", "file", "kind", "word"}
    assert visible_rows(world.second) == rows


def test_a_row_that_deletes_need_not_keep_the_tables_constraints(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, word string NOT NULL")
    sink = upserting(table)
    write(sink, 0, changes(spark, (1, "a", 1, "U"), (2, "b", 1, "U")))
    gone = spark.sql("SELECT 1L id, string(null) word, 2L at, 'D' op")
    write(sink, 1, gone)

    assert table_rows(spark, table) == [{"id": 2, "word": "b"}]
    with pytest.raises(BadRows, match="word is NOT NULL"):
        write(sink, 2, gone.selectExpr("id", "word", "at", "'U' op"))


def test_upsert_leaves_no_setting_behind(spark: SparkSession, tmp_path: Path) -> None:
    before = dict(spark.conf.getAll)
    write(DeltaSink(str(tmp_path / "table"), mode="upsert", keys=["id"]), 0, numbers(spark, 1))

    assert dict(spark.conf.getAll) == before


@pytest.mark.parametrize(
    ("rows", "order_by", "reason"),
    [
        ([(1, "a", 1, "U"), (1, "b", 2, "U")], [], "have the same id; set order_by to say which wins"),
        ([(1, "a", 1, "U"), (1, "b", 1, "U")], ["at"], "the same id and the same at"),
        ([(None, "a", 1, "U")], [], "the key column id is null"),
    ],
)
def test_rows_of_which_none_wins_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    rows: list[tuple[int, str, int, str]],
    order_by: list[str],
    reason: str,
) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), mode="upsert", keys=["id"], order_by=order_by)

    with pytest.raises(BadRows, match=reason):
        write(sink, 0, changes(spark, *rows))
    assert by_delta(spark, table) == {}


def test_new_columns_arrive_with_the_epoch_that_brings_them(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), evolve="add_columns")
    write(sink, 0, numbers(spark, 1))
    handle = staged(sink, attempt(1), numbers(spark, 2).selectExpr("*", "'more' extra"))
    columns_before = spark.read.format("delta").load(str(table)).columns
    sink.commit(attempt(1), handle)
    write(sink, 2, numbers(spark, 3).selectExpr("*", "'most' extra"))

    assert columns_before == ["id", "word"]
    assert [row["extra"] for row in table_rows(spark, table)] == [None, "more", "most"]
    assert engines(table)[:2] == ["delta-rs", "Delta"]
    assert sink.commit(attempt(1), handle) is Outcome.ALREADY_COMMITTED


def test_a_missing_table_is_made_with_its_partitions_and_properties(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    properties = {"delta.enableDeletionVectors": "true", "team": "it's \\ me"}
    write(DeltaSink(str(table), partition_by=["word"], properties=properties), 0, numbers(spark, 1))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]

    assert detail["partitionColumns"] == ["word"]
    assert properties.items() <= detail["properties"].items()
    assert [row["id"] for row in spark.read.format("delta").load(str(table)).collect()] == [1]
