"""A query with state: how often each word and kind has come so far. Each epoch shows all counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import epochal
from epochal import EpochQuery, EpochWriter, RollingFileSink
from integration_tests.spark.world import World, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
VERSION = "spark.sql.streaming.stateStore.checkpointFormatVersion"
MAINTENANCE = {"spark.sql.streaming.stateStore.maintenanceInterval": "1s"}  # read once by a JVM, at its first state
BRIEF = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.minBatchesToRetain": "5",
}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FORMATS = {
    "HDFSBacked": {},
    "RocksDB": {STORE: ROCKSDB, CHANGELOG: "false"},
    "changelog": {STORE: ROCKSDB, CHANGELOG: "true"},
    "format 2": {STORE: ROCKSDB, CHANGELOG: "true", VERSION: "2"},
}


@contextmanager
def format_of(spark: SparkSession, name: str, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """A format of Spark's state, with more settings: with `BRIEF` snapshots are frequent, and what is old is gone."""
    conf = {**FORMATS[name], **(more or {})}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            spark.conf.unset(key)


@contextmanager
def settings_unset(spark: SparkSession) -> Iterator[None]:
    """Without the settings of any format, as in the session of a command that is a process of its own."""
    before = {key: spark.conf.get(key, None) for key in (STORE, CHANGELOG, VERSION, *BRIEF)}
    for key in before:
        spark.conf.unset(key)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is not None:
                spark.conf.set(key, value)


@dataclass(frozen=True, slots=True)
class Forked(World):
    """Another checkpoint and target on the source of a world."""

    original: World

    @property
    def source(self) -> Path:
        return self.original.source


def counts(spark: SparkSession, world: World, files: int) -> DataFrame:
    """How many rows each word and kind has had so far, of a source that is read so many files at a time."""
    source = spark.readStream.schema("id long, file long, kind string, word string")
    frame = source.option("maxFilesPerTrigger", files).parquet(str(world.source))
    return frame.groupBy("word", "kind").count()


def start(spark: SparkSession, world: World, *, files: int = 1, **options: Any) -> EpochQuery:
    """A query that writes all counts in each epoch. It ends by itself unless a trigger is given."""
    trigger = options.pop("trigger", {"availableNow": True})
    sink = RollingFileSink(str(world.first), format="json")
    frame = counts(spark, world, files).writeStream.outputMode("complete")
    checkpoint = options.pop("checkpoint", str(world.checkpoint))
    frame = frame.option("checkpointLocation", checkpoint).trigger(**trigger)
    return EpochWriter(sink, **options).start(frame)


def shown(spark: SparkSession, world: World) -> dict[int, Counter[tuple[str, str]]]:
    """The counts that each published epoch holds."""
    found = {}
    for epoch in epochal.published(str(world.first)):
        files = [str(world.first / name) for name, _ in epoch.files]
        rows = spark.read.schema("word string, kind string, count long").json(files).collect() if files else []
        assert len({(row[0], row[1]) for row in rows}) == len(rows), "a count is there twice"
        found[epoch.epoch] = Counter({(row[0], row[1]): row[2] for row in rows})
    return found


def put_away(world: World) -> None:
    """Take a checkpoint from its place. Not removed: Spark's maintenance may still write into it, until it notices."""
    world.checkpoint.rename(world.root / "put-away")


def expected(files: int) -> Counter[tuple[str, str]]:
    """The counts after the first files of the source."""
    return Counter((word, kind) for file in range(files) for _, _, kind, word in rows_of(file))
