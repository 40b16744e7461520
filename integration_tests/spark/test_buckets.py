"""Buckets made from data: every value has its folder, none leads out of the target, no row is lost."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from epochal import BadRows, Bucket, EpochWriter, RollingFileSink, TimeBucket
from integration_tests.spark.checks import leftovers, visible_files
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.world import World, put_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NASTY = [
    "..",
    ".",
    "/",
    "/etc/passwd",
    "../../../outside",
    "a/../../b",
    "",
    None,
    "x" * 300,
    "x" * 299 + "y",
    "ü" * 130,
    "日本語 🎉",
    "\u00e9",
    "e\u0301",  # the same to look at, another text
    "line\nbreak\r\ttab",
    "nul\0inside",
    "\x01\x7f\x80",
    "_hidden",
    ".hidden",
    "%2F",
    "a=b",
    "__HIVE_DEFAULT_PARTITION__",
    "__EPOCHAL_EMPTY__",
    "CON",
    " space ",
    "*?:\"'{}[]^#\\",
]


def write(spark: SparkSession, world: World, sink: RollingFileSink, schema: str) -> None:
    EpochWriter(sink).start(to_checkpoint(stream(spark, world, schema), world)).awaitTermination()


def folders(target: Path) -> set[str]:
    return {str(file.parent.relative_to(target)) for file in visible_files(target)}


def feed_column(world: World, name: str, values: Sequence[Any], kind: pa.DataType) -> None:
    numbers = pa.array(range(len(values)), pa.int64())
    put_table(world.source, 0, pa.table({"number": numbers, name: pa.array(values, kind)}))


def test_nasty_values_stay_inside_the_target_and_are_read_back_equal(spark: SparkSession, world: World) -> None:
    feed_column(world, "value", NASTY, pa.string())
    neighbours = set(world.root.parent.iterdir())
    sink = RollingFileSink(str(world.first), bucket_by=["value"], marker="bucket")
    write(spark, world, sink, "number long, value string")

    read = spark.read.option("recursiveFileLookup", "true").parquet(str(world.first)).collect()
    assert Counter((row["number"], row["value"]) for row in read) == Counter(enumerate(NASTY))
    assert set(world.root.parent.iterdir()) == neighbours
    assert set(world.root.iterdir()) == {world.source, world.checkpoint, world.first}
    assert all(folder.startswith("value=") and "/" not in folder for folder in folders(world.first))
    assert len(folders(world.first)) == len(NASTY) - 2, "only what spells null or empty shares the folder of those"
    assert leftovers(world.first) == []


def test_buckets_of_buckets_nest(spark: SparkSession, world: World) -> None:
    world.feed(1)
    sink = RollingFileSink(str(world.first), bucket_by=["word", "kind"])
    EpochWriter(sink).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    kinds = ["kind=a", "kind=b%2F..%2Fc", "kind=__EPOCHAL_EMPTY__"]
    assert folders(world.first) == {f"word={word}/{kind}" for word in ("one", "two") for kind in kinds}


def test_a_column_with_a_dot_in_its_name_can_be_a_bucket(spark: SparkSession, world: World) -> None:
    feed_column(world, "a.b", ["x", "y"], pa.string())
    write(spark, world, RollingFileSink(str(world.first), bucket_by=["a.b"]), "number long, `a.b` string")

    assert folders(world.first) == {"a.b=x", "a.b=y"}


@pytest.mark.parametrize("session_zone", ["UTC", "America/New_York"])
def test_a_time_bucket_goes_by_its_own_zone_whatever_the_sessions_is(
    spark: SparkSession, world: World, session_zone: str
) -> None:
    moments = [
        datetime.datetime(2026, 6, 1, 21, 59, 59, 999_999, tzinfo=datetime.UTC),  # 23:59 in Berlin
        datetime.datetime(2026, 6, 1, 22, 0, tzinfo=datetime.UTC),  # midnight
        datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.UTC),
        datetime.datetime(2026, 10, 25, 0, 30, tzinfo=datetime.UTC),  # 2:30 in summer time
        datetime.datetime(2026, 10, 25, 1, 30, tzinfo=datetime.UTC),  # 2:30 again, an hour later
        None,
    ]
    feed_column(world, "at", moments, pa.timestamp("us", tz="UTC"))
    buckets = [
        TimeBucket("at", "hour", timezone="Europe/Berlin"),
        TimeBucket("at", "month", timezone="Asia/Tokyo", name="tokyo"),
    ]
    old = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", session_zone)
    try:
        write(spark, world, RollingFileSink(str(world.first), bucket_by=buckets), "number long, at timestamp")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(old))

    nothing = "__HIVE_DEFAULT_PARTITION__"
    assert folders(world.first) == {
        "hour=2026-06-01T23/tokyo=2026-06",
        "hour=2026-06-02T00/tokyo=2026-06",
        "hour=1900-01-01T01/tokyo=1900-01",
        "hour=2026-10-25T02/tokyo=2026-10",
        f"hour={nothing}/tokyo={nothing}",
    }


def test_times_without_a_zone_and_dates_are_taken_as_they_stand(spark: SparkSession, world: World) -> None:
    moment = datetime.datetime(2026, 6, 1, 23, 59)  # noqa: DTZ001  # that is the point
    table = pa.table(
        {"at": pa.array([moment], pa.timestamp("us")), "on": pa.array([datetime.date(2026, 6, 2)], pa.date32())}
    )
    put_table(world.source, 0, table)
    buckets = [TimeBucket("at", "minute", timezone="Asia/Tokyo"), TimeBucket("on", "day", timezone="Asia/Tokyo")]
    write(spark, world, RollingFileSink(str(world.first), bucket_by=buckets), "at timestamp_ntz, on date")

    assert folders(world.first) == {"minute=2026-06-01T23-59/day=2026-06-02"}


def test_dropped_bucket_columns_come_back_from_the_folders(spark: SparkSession, world: World) -> None:
    feed_column(world, "value", ["a/b", "c d", "%2F", None], pa.string())
    sink = RollingFileSink(str(world.first), bucket_by=["value"], drop_bucket_columns=True)
    write(spark, world, sink, "number long, value string")

    alone = spark.read.option("recursiveFileLookup", "true").parquet(str(world.first))
    assert alone.columns == ["number"]
    read = spark.read.parquet(str(world.first)).collect()
    assert {(row["number"], row["value"]) for row in read} == {(0, "a/b"), (1, "c d"), (2, "%2F"), (3, None)}


@pytest.mark.parametrize("value", ["", "x" * 300, "__HIVE_DEFAULT_PARTITION__"])
def test_a_value_that_a_folder_cannot_tell_is_refused_when_its_column_is_dropped(
    spark: SparkSession, world: World, value: str
) -> None:
    feed_column(world, "value", ["fine", value], pa.string())
    sink = RollingFileSink(str(world.first), bucket_by=["value"], drop_bucket_columns=True)

    with pytest.raises(BadRows, match="drop_bucket_columns=False"):
        write(spark, world, sink, "number long, value string")
    assert visible_files(world.first) == []
    assert leftovers(world.first) == []


def test_other_plain_types_make_buckets_too(spark: SparkSession, world: World) -> None:
    world.feed(1)
    frame = stream(spark, world).selectExpr("id", "file", "id % 2 = 0 as even", "cast(id as decimal(5,1)) as tenth")
    sink = RollingFileSink(str(world.first), bucket_by=["file", "even", "tenth"])
    EpochWriter(sink).start(to_checkpoint(frame.where("id < 2"), world)).awaitTermination()

    assert folders(world.first) == {"file=0/even=true/tenth=0.0", "file=0/even=false/tenth=1.0"}


def test_a_function_of_the_user_makes_buckets(spark: SparkSession, world: World) -> None:
    world.feed(1)
    tier = Bucket("tier", lambda rows: f.when(rows.id < 2, "small/../x").otherwise(None))
    sink = RollingFileSink(str(world.first), bucket_by=["word", tier])
    EpochWriter(sink).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    assert folders(world.first) == {
        "word=one/tier=small%2F..%2Fx",
        "word=two/tier=small%2F..%2Fx",
        "word=one/tier=__HIVE_DEFAULT_PARTITION__",
        "word=two/tier=__HIVE_DEFAULT_PARTITION__",
    }


def test_a_function_that_makes_no_column_is_refused_before_anything_is_written(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    sink = RollingFileSink(str(world.first), bucket_by=[Bucket("tier", lambda rows: rows.count)])  # type: ignore[arg-type,return-value]

    with pytest.raises(BadRows, match="'tier': its function returned"):
        EpochWriter(sink).start(to_checkpoint(stream(spark, world), world)).awaitTermination()
    assert visible_files(world.first) == []
