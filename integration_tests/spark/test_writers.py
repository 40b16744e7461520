"""Writers and queries: one each, with or without our own start, by settings too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, StreamingQueryException

from epochal import BadRows, EpochWriter, OptionError, Refused, Rewound, RollingFileSink, UnsupportedQuery
from epochal.spark_plugins.writer import Commit
from epochal.txn.files import LocalFiles
from integration_tests.spark.checks import check_at_the_end, committed, visible_files, visible_rows
from integration_tests.spark.queries import archive, run, start, stream, to_checkpoint, tree
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def other(tmp_path: Path) -> World:
    """A second stream's world."""
    return World(tmp_path / "other")


def test_two_queries_of_one_session_each_have_their_writer(spark: SparkSession, world: World, other: World) -> None:
    world.feed(3)
    other.feed(4)
    queries = [start(spark, each, EpochWriter(archive(each))) for each in (world, other)]
    for query in queries:
        query.awaitTermination()

    check_at_the_end(world, files=3)
    check_at_the_end(other, files=4)


def test_a_writer_that_runs_a_query_refuses_another(spark: SparkSession, world: World, other: World) -> None:
    world.feed(1)
    other.feed(1)
    writer = EpochWriter(archive(world))
    with start(spark, world, writer, processingTime="50 milliseconds") as first:
        first.processAllAvailable()
        with pytest.raises(Refused, match="give each query an EpochWriter of its own"):
            start(spark, other, writer)

        assert first.isActive
        world.feed(2)
        first.processAllAvailable()
    check_at_the_end(world, files=2)


def test_foreach_batch_alone_shows_the_last_epoch_when_spark_reports_it(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = to_checkpoint(stream(spark, world), world, processingTime="1 hour")
    running = query.foreachBatch(EpochWriter(archive(world))).start()
    try:
        # No second batch comes, and nobody stops the query or waits for it.
        wait_until(lambda: visible_rows(world.first) == all_rows(1), "the listener to settle")
    finally:
        running.stop()


def test_a_writer_called_outside_a_query_says_how_it_is_used(spark: SparkSession, world: World) -> None:
    with pytest.raises(UnsupportedQuery, match=r"pass it to writeStream\.foreachBatch"):
        EpochWriter(archive(world))(spark.range(1), 0)


def test_asynchronous_progress_tracking_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    run(spark, world)
    before = LocalFiles().names(str(world.journal))
    query = to_checkpoint(stream(spark, world), world, processingTime="1 second")

    with pytest.raises(IllegalArgumentException, match="does not support async progress tracking"):
        EpochWriter(archive(world)).start(query.option("asyncProgressTrackingEnabled", "true"))
    assert LocalFiles().names(str(world.journal)) == before  # a driver that runs goes on


def test_continuous_processing_is_refused(spark: SparkSession, world: World) -> None:
    rate = spark.readStream.format("rate").load()

    with pytest.raises(AnalysisException, match="not supported with continuous trigger"):
        EpochWriter(archive(world)).start(to_checkpoint(rate, world, continuous="1 second"))
    assert not world.first.exists()


def test_real_time_mode_is_refused(spark: SparkSession, world: World) -> None:
    rate = spark.readStream.format("rate").load()

    with pytest.raises(IllegalArgumentException, match="not in the sink allowlist for Real-Time Mode"):
        EpochWriter(archive(world)).start(to_checkpoint(rate, world, "update", realTime="5 minutes"))
    assert not world.first.exists()


@pytest.fixture
def anything_goes(spark: SparkSession) -> Iterator[None]:
    """Spark's own check of real-time queries, off."""
    key = "spark.sql.streaming.realTimeMode.allowlistCheck"
    spark.conf.set(key, "false")
    yield
    spark.conf.unset(key)


@pytest.mark.usefixtures("anything_goes")
def test_real_time_mode_is_refused_by_name_even_if_spark_lets_it_pass(spark: SparkSession, world: World) -> None:
    rate = spark.readStream.format("rate").load()

    with pytest.raises(UnsupportedQuery, match="real-time mode shows rows before the checkpoint"):
        EpochWriter(archive(world)).start(to_checkpoint(rate, world, "update", realTime="5 minutes"))
    assert spark.streams.active == []
    assert not world.first.exists()


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Settings of the session; what a test puts here is set when it calls `apply` and gone afterwards."""
    for key in dict(spark.conf.getAll):
        if key.startswith("spark.epochal.orders."):  # an example's, which has run in this session
            spark.conf.unset(key)
    given: dict[str, str] = {}
    yield given
    for key in given:
        spark.conf.unset(key)


def apply(spark: SparkSession, settings: dict[str, str], **given: str) -> None:
    for key, value in given.items():
        settings[f"spark.epochal.orders.{key.replace('__', '.')}"] = value
    for key, value in settings.items():
        spark.conf.set(key, value)


def test_settings_alone_make_a_writer(spark: SparkSession, world: World, settings: dict[str, str]) -> None:
    apply(
        spark,
        settings,
        sinks="archive, copy",
        commit="eager",
        archive__type="files",
        archive__path=str(world.first),
        archive__bucket_by="kind",
        copy__type="files",
        copy__path=str(world.second),
        copy__format="json",
        copy__options__lineSep="\n",
    )
    world.feed(2)
    start(spark, world, EpochWriter.from_conf(spark, "orders")).awaitTermination()

    check_at_the_end(world, files=2)
    assert {file.suffix for file in visible_files(world.second)} == {".json"}


def test_all_that_is_wrong_with_settings_comes_at_once(spark: SparkSession, settings: dict[str, str]) -> None:
    apply(
        spark,
        settings,
        sinks="archive, copy",
        comit="eager",
        archive__type="files",
        archive__pth="/data",
        archive__format="parqet",
        copy__type="flies",
    )
    with pytest.raises(OptionError) as error:
        EpochWriter.from_conf(spark, "orders")

    answer = str(error.value)
    assert len(error.value.faults) == 5, answer
    near = [f"did you mean '{name}'?" for name in ("commit", "path", "parquet", "files")]
    for part in (*near, "archive.path: missing"):
        assert part in answer


def test_sinks_that_share_a_target_are_told_apart_by_their_names(spark: SparkSession, world: World) -> None:
    with pytest.raises(OptionError, match="'files' is the name of several"):
        EpochWriter(archive(world), RollingFileSink(str(world.second)))


def test_a_writer_that_is_called_twice_for_a_batch_refuses_the_second_frame(spark: SparkSession, world: World) -> None:
    world.feed(1)
    writer = EpochWriter(archive(world))

    def twice(frame: DataFrame, epoch: int) -> None:
        writer(frame.where("id % 2 = 0"), epoch)
        writer(frame.where("id % 2 = 1"), epoch)

    with pytest.raises(StreamingQueryException, match="epoch 0 was passed to this writer twice"):
        to_checkpoint(stream(spark, world), world).foreachBatch(twice).start().awaitTermination()

    assert committed(world) == set()
    assert visible_files(world.first) == []


@pytest.mark.parametrize("commit", ["checkpoint", "eager"])
def test_two_writers_in_one_query_are_refused_before_its_first_epoch_is_committed(
    spark: SparkSession, world: World, commit: Commit
) -> None:
    world.feed(1)
    one = EpochWriter(archive(world), commit=commit)
    other = EpochWriter(RollingFileSink(str(world.second), name="second"), commit=commit)

    def both(frame: DataFrame, epoch: int) -> None:
        one(frame, epoch)
        other(frame, epoch)

    with pytest.raises(StreamingQueryException, match="Put all sinks into one EpochWriter"):
        to_checkpoint(stream(spark, world), world).foreachBatch(both).start().awaitTermination()

    assert committed(world) == set()
    assert visible_files(world.second) == []


def test_columns_with_names_of_epochals_own_are_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    frame = stream(spark, world).withColumnRenamed("word", "_Epochal_Bucket_0")

    with pytest.raises(BadRows, match="column '_Epochal_Bucket_0': names that begin with _epochal_"):
        EpochWriter(archive(world)).start(to_checkpoint(frame, world))
    assert not world.checkpoint.exists()


def test_all_rows_again_in_each_epoch_is_warned_of(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.feed(1)
    counts = stream(spark, world).groupBy("word").count()
    EpochWriter(archive(world)).start(to_checkpoint(counts, world, "complete")).awaitTermination()

    assert "sink 'files' keeps the rows of every epoch, and the output mode complete gives all again" in caplog.messages


def test_a_refused_start_leaves_the_checkpoint_as_it_was(spark: SparkSession, world: World) -> None:
    world.feed(2)
    start(spark, world, EpochWriter(archive(world))).awaitTermination()
    shutil.rmtree(world.first)
    world.feed(4)  # there would be something to plan
    before = tree(world.checkpoint)

    with pytest.raises(Rewound, match="the target was emptied"):
        start(spark, world, EpochWriter(archive(world)))
    assert tree(world.checkpoint) == before
