"""Rows that a sink cannot hold stop the query before anything of the epoch is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from epochal import BadRows, EpochWriter, OptionError, RollingFileSink, TimeBucket
from integration_tests.spark.checks import committed, leftovers, visible_files, visible_rows
from integration_tests.spark.queries import archive, stream, to_checkpoint
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "columns", "told"),
    [
        ({"bucket_by": ["kin"]}, ["*"], "'kin' is not in the frame, which has id, file, kind, word"),
        ({"bucket_by": [TimeBucket("kind")]}, ["*"], "'kind' is string: a time bucket needs a timestamp"),
        ({"bucket_by": ["pair"]}, ["id", "array(id) as pair"], "'pair' is array<bigint>: a bucket needs a plain value"),
        ({"format": "csv"}, ["map(word, id) as m"], "csv"),
        ({"format": "text"}, ["word", "kind"], "text"),
        ({"format": "text"}, ["id"], "text"),
        ({"bucket_by": ["word"], "drop_bucket_columns": True}, ["word"], "parquet"),
    ],
)
def test_a_frame_that_the_sink_cannot_write_is_refused(
    spark: SparkSession, world: World, options: dict[str, Any], columns: list[str], told: str
) -> None:
    world.feed(1)
    frame = stream(spark, world).selectExpr(*columns)
    query = EpochWriter(archive(world, **options)).start(to_checkpoint(frame, world))

    with pytest.raises(BadRows, match=told.replace("*", r"\*")):
        query.awaitTermination()
    assert visible_files(world.first) == []
    assert leftovers(world.first) == []
    assert committed(world) == set()


def test_an_option_that_sparks_writer_does_not_know_is_told_as_one(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = EpochWriter(archive(world, compression="nonsense")).start(to_checkpoint(stream(spark, world), world))

    with pytest.raises(OptionError, match="codec nonsense is not available"):
        query.awaitTermination()
    assert visible_files(world.first) == []
    assert leftovers(world.first) == []


def test_the_query_goes_on_once_the_frame_is_mended(spark: SparkSession, world: World) -> None:
    world.feed(2)
    with pytest.raises(BadRows):
        EpochWriter(archive(world, bucket_by=["kin"])).start(
            to_checkpoint(stream(spark, world), world)
        ).awaitTermination()
    EpochWriter(archive(world, bucket_by=["kind"])).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    assert visible_rows(world.first) == all_rows(2)


def fickle(spark: SparkSession, world: World) -> DataFrame:
    """Rows that a frame gives only the first time it runs."""
    from pyspark.sql import functions as f

    once = str(world.root / "once")
    os.mkdir(once)

    @f.udf("boolean", useArrow=False)
    def first_time(number: int) -> bool:
        try:
            os.mkdir(f"{once}/{number}")
        except FileExistsError:
            return False
        return True

    return stream(spark, world).where(first_time("id"))


def test_a_frame_that_gives_the_second_sink_other_rows_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    sinks = [archive(world), RollingFileSink(str(world.second), name="second")]
    query = EpochWriter(*sinks, cache=False).start(to_checkpoint(fickle(spark, world), world))

    with pytest.raises(BadRows, match=r"different numbers of rows \(files 6, second 0\)"):
        query.awaitTermination()
    assert visible_files(world.first) + visible_files(world.second) == []
    assert leftovers(world.first) + leftovers(world.second) == []


def test_several_sinks_get_the_same_rows_of_a_fickle_frame_by_default(spark: SparkSession, world: World) -> None:
    world.feed(2)
    sinks = [archive(world), RollingFileSink(str(world.second), name="second", format="json")]
    EpochWriter(*sinks).start(to_checkpoint(fickle(spark, world), world)).awaitTermination()

    assert visible_rows(world.first) == visible_rows(world.second) == all_rows(2)
