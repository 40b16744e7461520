"""Rows replaced and deleted by key, and totals that are added up exactly once."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from epochal.participant import BadRows, Outcome, Refused
from integration_tests.postgres.tables import LINEAGE, Space, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id long, word string, at long, op string"


def test_the_last_row_of_a_key_counts_and_deletes_are_rows_too(spark: SparkSession, space: Space) -> None:
    table = space.table("upserts", "id bigint PRIMARY KEY, word text NOT NULL, kept text DEFAULT 'kept'")
    sink = space.sink(table, mode="upsert", keys=["id"], order_by=["at"], delete_when="op = 'D'", drop=["at", "op"])
    rows = [(1, "a", 1, "I"), (1, "b", 3, "U"), (1, "c", 2, "U"), (2, "x", 1, "I"), (3, "y", 1, "I")]
    write(sink, 0, spark.createDataFrame(rows, SCHEMA).repartition(3))
    again = [(2, None, 5, "D"), (3, "z", 4, "D"), (3, "z", 6, "I"), (4, None, None, "D"), (1, "d", None, "U")]
    attempt, handle = write(sink, 1, spark.createDataFrame(again, SCHEMA).coalesce(1))

    expected = [(1, "d", "kept"), (3, "z", "kept")]
    assert space.execute(f"SELECT * FROM {table} ORDER BY id") == expected
    assert space.sink(table).commit(attempt, handle) is Outcome.ALREADY_COMMITTED
    assert space.execute(f"SELECT * FROM {table} ORDER BY id") == expected


def test_rows_that_no_order_decides_between_are_refused(spark: SparkSession, space: Space) -> None:
    table = space.table("tied", "id bigint PRIMARY KEY, word text")
    rows = spark.createDataFrame([(1, "a", 2, ""), (1, "b", 2, ""), (1, "c", 1, "")], SCHEMA).drop("op").coalesce(1)
    for options in ({"order_by": ["at"]}, {}):
        sink = space.sink(table, mode="upsert", keys=["id"], drop=["at"], **options)
        with pytest.raises(BadRows, match="1 key has several rows"):
            stage(sink, 0, rows)
    assert sink.leftovers(LINEAGE) == []


def test_totals_are_those_of_all_rows_each_counted_once(spark: SparkSession, space: Space) -> None:
    table = space.table(
        "totals", "day text, region text, amount numeric(20,2), orders bigint, least int, PRIMARY KEY (region, day)"
    )
    totals = {"amount": "sum", "orders": "count", "least": "min"}
    sink = space.sink(table, mode="accumulate", keys=["day", "region"], totals=totals)
    for epoch in range(3):
        rows = spark.range(100).selectExpr(
            "concat('d', id % 2) AS day",
            "'r' AS region",
            "CAST(id / 100 AS DECIMAL(10,2)) AS amount",
            f"CAST({epoch} - id AS INT) AS least",
        )
        attempt, handle = write(sink, epoch, rows)
        assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED

    assert space.execute(f"SELECT * FROM {table} ORDER BY day") == [
        ("d0", "r", 3 * Decimal("24.50"), 150, -98),
        ("d1", "r", 3 * Decimal("25.00"), 150, -99),
    ]


def test_a_total_that_would_be_too_large_is_refused_before_the_epoch_is_decided(
    spark: SparkSession, space: Space
) -> None:
    table = space.table("small", "k int PRIMARY KEY, n smallint, m numeric(4,2)")
    sink = space.sink(table, mode="accumulate", keys=["k"], totals={"n": "sum", "m": "sum"})
    write(sink, 0, spark.sql("SELECT 1 AS k, 30000 AS n, 1.5BD AS m"))
    with pytest.raises(BadRows, match="n, m: a total would be too large"):
        stage(sink, 1, spark.sql("SELECT 1 AS k, 3000 AS n, 98.5BD AS m"))
    write(sink, 1, spark.sql("SELECT 1 AS k, 2767 AS n, 98.4BD AS m"))

    assert space.execute(f"SELECT n, m FROM {table}") == [(32767, Decimal("99.90"))]


def test_a_table_with_totals_is_never_offered_to_a_second_stream(space: Space) -> None:
    table = space.table("owned", "k int PRIMARY KEY, n bigint")

    assert space.sink(table, mode="accumulate", keys=["k"], totals={"n": "sum"}).open(LINEAGE).exclusive
    assert not space.sink(table).open(LINEAGE).exclusive


def test_output_modes_that_give_rows_again_are_refused(space: Space) -> None:
    table = space.table("modes", "k int PRIMARY KEY, n bigint")
    with pytest.raises(Refused, match="complete"):
        space.sink(table).check_output_mode("complete")
    with pytest.raises(Refused, match="complete"):
        space.sink(table, mode="accumulate", keys=["k"], totals={"n": "sum"}).check_output_mode("complete")

    space.sink(table, mode="upsert", keys=["k"]).check_output_mode("complete")
