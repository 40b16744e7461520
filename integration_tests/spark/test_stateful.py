"""Stateful queries: what the sinks hold is what Spark gave, and a skipped epoch does not cost the state."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal import EpochWriter, RollingFileSink
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark.checks import committed, leftovers
from integration_tests.spark.queries import archive, stream, to_checkpoint
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def windows(spark: SparkSession, world: World) -> DataFrame:
    """Counts in windows of four rows: a file's rows fall into several, and a window's come from two files."""
    times = stream(spark, world).selectExpr("timestamp_seconds(id * 60) as at", "word")
    counted = times.withWatermark("at", "1 minute").groupBy("word", _window()).count()
    return counted.selectExpr("word", "cast(window.start as string) as start", "count")


def _window() -> Any:
    from pyspark.sql import functions as f

    return f.window("at", "4 minutes")


def expected(spark: SparkSession, world: World, mode: str) -> list[Counter[Any]]:
    """What Spark gives in each epoch of the same query."""
    epochs: list[Counter[Any]] = []
    reference = World(world.root / "reference")
    query = to_checkpoint(windows(spark, world), reference, mode)

    def keep(frame: DataFrame, _: int) -> None:
        epochs.append(Counter(tuple(row) for row in frame.collect()))

    query.foreachBatch(keep).start().awaitTermination()
    return epochs


def held(spark: SparkSession, target: str) -> list[Counter[Any]]:
    """What each published epoch holds."""
    epochs = []
    for epoch in epochal.published(target):
        files = [f"{target}/{name}" for name, _ in epoch.files]
        rows = spark.read.schema("word string, start string, count long").json(files).collect() if files else []
        epochs.append(Counter(tuple(row) for row in rows))
    return epochs


def start(spark: SparkSession, world: World, mode: str, **options: Any) -> None:
    sink = RollingFileSink(str(world.first), format="json", bucket_by=["word"])
    EpochWriter(sink, **options).start(to_checkpoint(windows(spark, world), world, mode)).awaitTermination()


@pytest.mark.parametrize("mode", ["update", "complete", "append"])
def test_each_epoch_of_an_aggregation_is_held_as_spark_gave_it(spark: SparkSession, world: World, mode: str) -> None:
    world.feed(3)
    start(spark, world, mode)

    epochs = expected(spark, world, mode)
    assert held(spark, str(world.first)) == epochs
    assert leftovers(world.first) == []
    if mode == "append":
        assert len(epochs) > 3, "no epoch without data came after the last file"


def test_a_stateful_query_survives_the_skip_of_an_epoch_that_was_eagerly_written(
    spark: SparkSession, world: World
) -> None:
    world.feed(2)
    start(spark, world, "update", commit="eager")
    # As after a kill between the eager commit of the last epoch and Spark's own.
    last = max(committed(world))
    (world.checkpoint / "commits" / str(last)).unlink()
    (world.checkpoint / "commits" / f".{last}.crc").unlink()
    world.feed(5)
    start(spark, world, "update", commit="eager")

    totals = _totals(held(spark, str(world.first)))
    assert totals == _totals(expected(spark, world, "update"))
    assert Journal(LocalFiles(), str(world.journal)).read().done_through == max(committed(world))


STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.mark.parametrize(
    "settings",
    [{}, {STORE: ROCKSDB, CHANGELOG: "false"}, {STORE: ROCKSDB, CHANGELOG: "true"}],
    ids=["HDFSBacked", "RocksDB", "RocksDB with changelog"],
)
def test_a_stateful_query_goes_on_after_a_restart(
    spark: SparkSession, world: World, settings: dict[str, str], request: pytest.FixtureRequest
) -> None:
    for key, value in settings.items():
        spark.conf.set(key, value)
        request.addfinalizer(lambda key=key: spark.conf.unset(key))  # type: ignore[misc]
    world.feed(2)
    start(spark, world, "update")
    world.feed(5)
    start(spark, world, "update")

    assert _totals(held(spark, str(world.first))) == _totals(expected(spark, world, "update"))


def test_two_sinks_run_a_stateful_epoch_together(spark: SparkSession, world: World) -> None:
    world.feed(3)
    sinks = [archive(world, format="json"), RollingFileSink(str(world.second), format="json", name="second")]
    EpochWriter(*sinks).start(to_checkpoint(windows(spark, world), world, "update")).awaitTermination()

    assert held(spark, str(world.first)) == held(spark, str(world.second)) == expected(spark, world, "update")


def _totals(epochs: list[Counter[Any]]) -> dict[tuple[str, str], int]:
    """The last count of each window: epochs are cut differently when files come later."""
    totals: dict[tuple[str, str], int] = {}
    for epoch in epochs:
        for word, begin, count in epoch:
            totals[word, begin] = count
    return totals
