"""Triggers, empty epochs, stopping and going on: whatever the query does, each epoch is there once."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import epochal
from epochal import DeltaSink, EpochWriter, Refused, RollingFileSink
from integration_tests.spark.checks import check_at_the_end, committed, leftovers, visible_rows
from integration_tests.spark.queries import archive, run, start, stream, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_available_now_shows_every_epoch_once(spark: SparkSession, world: World) -> None:
    world.feed(3)
    run(spark, world)

    check_at_the_end(world, files=3)


def test_the_same_query_started_again_without_new_data_changes_nothing(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    before = files_but_claims(world)
    run(spark, world)

    check_at_the_end(world, files=2)
    assert files_but_claims(world) == before


def files_but_claims(world: World) -> list[Path]:
    """What is in the first target; each start claims it anew."""
    return sorted(path for path in world.first.rglob("*") if path.parent.name != "lineages")


def test_a_query_stopped_and_resumed_goes_on_where_it_was(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    world.feed(5)
    run(spark, world)

    check_at_the_end(world, files=5)


def test_processing_time_shows_each_epoch_as_it_comes(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = start(spark, world, EpochWriter(archive(world)), processingTime="50 milliseconds")
    try:
        wait_until(lambda: visible_rows(world.first) == all_rows(1), "the first epoch to be visible")
        world.feed(2)
        wait_until(lambda: visible_rows(world.first) == all_rows(2), "the second epoch to be visible")
    finally:
        query.stop()

    check_at_the_end(world, files=2)


def test_process_all_available_makes_the_rows_visible(spark: SparkSession, world: World) -> None:
    world.feed(2)
    with start(spark, world, EpochWriter(archive(world)), processingTime="50 milliseconds") as query:
        query.processAllAvailable()

        assert visible_rows(world.first) == all_rows(2)


def test_the_end_of_a_with_block_stops_the_query_and_settles(spark: SparkSession, world: World) -> None:
    world.feed(1)
    with start(spark, world, EpochWriter(archive(world)), processingTime="50 milliseconds") as query:
        wait_until(lambda: committed(world) == {0}, "the first epoch's commit")

    assert not query.isActive
    check_at_the_end(world, files=1)


def test_the_handle_has_all_that_sparks_own_has(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = start(spark, world, EpochWriter(archive(world)))
    ended = query.awaitTermination(timeout=200)

    assert ended is True
    assert (query.id, query.runId) == (query.spark_query.id, query.spark_query.runId)
    assert query.lastProgress is not None
    assert query.lastProgress["batchId"] == 0
    assert (query.isActive, query.name, query.exception()) == (False, None, None)
    assert query.id in repr(query)


def test_awaiting_with_a_timeout_says_that_the_query_goes_on(spark: SparkSession, world: World) -> None:
    world.feed(1)
    with start(spark, world, EpochWriter(archive(world)), processingTime="1 hour") as query:
        ended = query.awaitTermination(timeout=1)

        assert ended is False
        assert query.isActive


def test_an_epoch_whose_rows_are_all_filtered_away_is_an_epoch(spark: SparkSession, world: World) -> None:
    world.feed(3)
    odd = stream(spark, world).where("file % 2 = 1")
    EpochWriter(archive(world, bucket_by=["kind"])).start(to_checkpoint(odd, world)).awaitTermination()

    expected = {row: 1 for row in all_rows(3) if row[1] == 1}
    assert visible_rows(world.first) == expected
    assert [(epoch.epoch, epoch.rows) for epoch in epochal.published(str(world.first))] == [(0, 0), (1, 6), (2, 0)]
    assert leftovers(world.first) == []


def test_one_writer_may_start_its_query_again(spark: SparkSession, world: World) -> None:
    writer = EpochWriter(archive(world))
    world.feed(1)
    start(spark, world, writer).awaitTermination()
    world.feed(2)
    start(spark, world, writer).awaitTermination()

    check_at_the_end(world, files=2)


def test_a_checkpoint_whose_driver_died_while_spark_wrote_its_first_offsets_can_be_used(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    (world.checkpoint / "offsets").mkdir(parents=True)
    (world.checkpoint / "offsets" / ".0.6c1dfa5e-0000-4000-8000-000000000000.tmp").touch()
    run(spark, world)

    check_at_the_end(world, files=1)


def test_a_query_without_a_lasting_checkpoint_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    once = stream(spark, world).writeStream.trigger(availableNow=True)
    with pytest.raises(Refused, match=r"Spark made a temporary one .*'checkpointLocation'"):
        EpochWriter(archive(world)).start(once)
    query = stream(spark, world).writeStream.trigger(availableNow=True).foreachBatch(EpochWriter(archive(world)))
    with pytest.raises(StreamingQueryException, match="Spark made a temporary one"):
        query.start().awaitTermination()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(world.root))
    try:
        with pytest.raises(Refused, match="neither checkpointLocation nor queryName"):
            EpochWriter(archive(world)).start(stream(spark, world).writeStream.trigger(availableNow=True))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert not world.first.exists()
    assert spark.streams.active == []


def test_places_that_cannot_be_written_are_told_with_what_to_do(spark: SparkSession, world: World) -> None:
    world.feed(1)
    (world.root / "file").touch()
    file = str(world.root / "file")
    cases: list[tuple[EpochWriter, str]] = [
        (EpochWriter(RollingFileSink(file, name="a")), "sink 'a': .*file is not a folder.* Correct the sink's path"),
        (EpochWriter(DeltaSink(f"{file}/x", name="b")), "sink 'b': .*file is not a folder, so .*x cannot be made"),
        (EpochWriter(RollingFileSink("/proc/nope", name="c")), "sink 'c': its target cannot be reached: .*/proc/nope"),
        (EpochWriter(archive(world), journal=file), "the journal cannot be reached: .*file.* journal="),
    ]
    for writer, answer in cases:
        with pytest.raises(Refused, match=answer) as refused:
            writer.start(to_checkpoint(stream(spark, world), world))
        trace = traceback.format_exception(refused.value)
        assert len("".join(trace).splitlines()) < 30, "the error is hard to find in its trace"
    elsewhere = stream(spark, world).writeStream.option("checkpointLocation", "/proc/nope")
    with pytest.raises(Refused, match=r"mkdir of .*/proc/nope failed.* checkpointLocation"):
        EpochWriter(archive(world)).start(elsewhere)

    assert not world.first.exists()
    assert spark.streams.active == []
