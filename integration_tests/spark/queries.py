"""Queries in this process, on a world's source and checkpoint."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal import EpochQuery, EpochWriter, RollingFileSink
from epochal.txn.model import Attempt, Handle, Outcome
from epochal.txn.participant import Wrapper
from integration_tests.spark.world import SCHEMA, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def stream(spark: SparkSession, world: World, schema: str = SCHEMA) -> DataFrame:
    """The world's source as a stream: a file an epoch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(world.source))


def to_checkpoint(frame: DataFrame, world: World, mode: str = "append", **trigger: Any) -> DataStreamWriter:
    """A query on the world's checkpoint; it ends by itself unless a trigger is given."""
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(world.checkpoint))
    return writer.trigger(**trigger or {"availableNow": True})


def start(spark: SparkSession, world: World, writer: EpochWriter, **trigger: Any) -> EpochQuery:
    """A running query from the world's source."""
    return writer.start(to_checkpoint(stream(spark, world), world, **trigger))


def run(spark: SparkSession, world: World, *sinks: Any, **options: Any) -> None:
    """A query from the world's source, run to its end."""
    start(spark, world, EpochWriter(*sinks or [archive(world)], **options)).awaitTermination()


def archive(world: World, **options: Any) -> RollingFileSink:
    """A sink on the world's first target."""
    return RollingFileSink(str(world.first), **options)


def tree(folder: Path) -> Counter[str]:
    """Every file below a folder, by its path and length."""
    return Counter(
        f"{Path(at, name).relative_to(folder)} {Path(at, name).stat().st_size}"
        for at, _, names in os.walk(folder)
        for name in names
    )


class Meddled(Wrapper["DataFrame"]):
    """A sink in which a test can do something first, each time it commits."""

    def __init__(self, sink: RollingFileSink, before_commit: Callable[[Attempt, Handle], None]) -> None:
        super().__init__(sink)
        self._before_commit = before_commit

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        self._before_commit(attempt, handle)
        return super().commit(attempt, handle)
