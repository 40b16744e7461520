"""Totals: exact whatever is repeated, and one stream's alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import BadRows, EpochWriter, ForeignTarget, Refused
from epochal.testing.contract import claim_for
from epochal.txn.model import NO_EPOCH
from integration_tests.cassandra.tables import LINEAGE, Keyspace, Zombie, pairs, seen, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_totals_of_many_digits_are_exact(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a decimal, epochal text")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"})
    for epoch, amount in enumerate(("90000000000000000000000000000000.01", "0.02")):
        write(sink, epoch, spark.sql(f"SELECT 1 AS id, {amount}BD AS a"))

    assert seen(space, table, "a") == [(Decimal("90000000000000000000000000000000.03"),)]


def test_a_total_that_would_not_fit_is_refused_while_staging(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, epochal text")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"})
    half = "SELECT 1 AS id, 3000000000000000000L AS a"
    write(sink, 0, spark.sql(half))
    with pytest.raises(BadRows, match=r"a total of a would become larger than 2\^62.*Store it as varint"):
        stage(sink, 1, spark.sql(half))
    write(sink, 1, spark.sql("SELECT 1 AS id, -3000000000000000000L AS a"))

    assert seen(space, table, "a, epochal") == [(0, f"{LINEAGE}@1")]
    assert space.execute(f"SELECT * FROM {space.name}.epochal_parts") == []


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_epoch_whose_own_sum_is_too_large_is_an_error_whatever_sparks_rules_are(
    spark: SparkSession, space: Keyspace, tmp_path: Path, ansi: str
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, d decimal, epochal text")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum", "d": "sum"})
    great = "9" * 38
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for columns in ("9000000000000000000L AS a, 1BD AS d", f"1L AS a, {great}BD AS d"):
            with pytest.raises(Exception, match=r"(?i)overflow|too large"):
                stage(sink, 0, spark.sql(f"SELECT 1 AS id, {columns} UNION ALL SELECT 1 AS id, {columns}"))
        write(
            sink, 0, spark.sql("SELECT 1 AS id, 2L AS a, CAST(NULL AS decimal(38,0)) AS d UNION ALL SELECT 1, 3L, NULL")
        )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")

    assert seen(space, table, "a, d") == [(5, None)]


def test_who_would_add_to_another_streams_totals_is_refused_before_anything_is_staged(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id bigint PRIMARY KEY, n bigint, epochal text")
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "in"))

    def run(checkpoint: str, **choices: Any) -> None:
        stream = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).writeStream
        sink = space.sink(table, mode="accumulate", totals={"n": "count"})
        query = EpochWriter(sink, **choices).start(
            stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / checkpoint))
        )
        query.awaitTermination()

    run("first")
    with pytest.raises(ForeignTarget) as raised:
        run("second")
    (token,) = [word for word in str(raised.value).split("'") if word.endswith("@0")]
    with pytest.raises(ForeignTarget) as again:
        run("second", new=token)
    assert "\n  new=" not in str(raised.value)
    assert "Only one stream may write to sink" in str(again.value)
    assert seen(space, table, "n") == [(1,)] * 3
    run("second", adopt=token)

    assert seen(space, table, "n") == [(2,)] * 3


def test_of_two_streams_that_start_at_once_one_gets_the_totals(space: Keyspace, tmp_path: Path) -> None:
    table = space.table("totals", "id bigint PRIMARY KEY, n bigint, epochal text")
    sink = space.sink(table, staging=str(tmp_path), mode="accumulate", totals={"n": "count"})
    assert [sink.open(lineage).others for lineage in ("one", "two")] == [{}, {}]
    claim_for(sink, "one")

    with pytest.raises(Refused, match="has the totals of another stream, one, and two cannot add"):
        claim_for(sink, "two")
    assert sink.open("two").others == {"one": NO_EPOCH}
    assert not sink.open("two").enrolled
    claim_for(sink, "three", replaces=("one",))
    assert sink.open("three").enrolled
    assert sink.open("one").adopted_by == "three"


def test_an_upsert_into_a_table_of_totals_has_no_new_either(space: Keyspace, tmp_path: Path) -> None:
    table = space.table("totals", "id bigint PRIMARY KEY, n bigint, epochal text")
    claim_for(space.sink(table, staging=str(tmp_path), mode="accumulate", totals={"n": "count"}), "one")

    assert space.sink(table, staging=str(tmp_path)).open("two").exclusive


def test_totals_are_exact_when_an_epoch_is_replayed_and_when_a_sleeper_wakes(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, n bigint, epochal text")
    sink = space.sink(
        table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum", "n": "count"}, drop=["b"]
    )
    attempt, handle = stage(sink, 0, pairs(spark, (1, 10, ""), (1, 5, ""), (2, 1, "")))
    zombie = Zombie(sink, attempt, handle, tmp_path)
    sink.commit(attempt, handle)
    zombie.wake()  # the same epoch once more
    after_replay = seen(space, table, "id, a, n")
    write(sink, 1, pairs(spark, (1, 100, "")))
    zombie.wake()  # and after a newer one

    assert after_replay == [(1, 15, 2), (2, 1, 1)]
    assert seen(space, table, "id, a, n") == [(1, 115, 3), (2, 1, 1)]


def test_totals_of_another_stream_are_not_added_to(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, epochal text")
    space.execute(f"INSERT INTO {table} (id, a, epochal) VALUES (1, 7, 'somebody@3')")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"}, drop=["b"])
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "")))

    with pytest.raises(Refused, match="accumulated by another stream"):
        sink.commit(attempt, handle)
    assert seen(space, table, "id, a") == [(1, 7)]


def test_a_total_without_its_mark_column_is_told_what_to_add(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"}, drop=["b"])

    with pytest.raises(Exception, match=f'ALTER TABLE "{space.name}"."totals" ADD epochal text'):
        stage(sink, 0, pairs(spark, (1, 1, "")))
