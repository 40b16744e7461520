"""The stream that old versions wrote and that this one goes on with: its source, its sinks and its rows.

The source counts by itself from a fixed time, so its offsets name rows and not files: a checkpoint can be unpacked
anywhere. Whoever changes anything here cannot finish what the old versions have begun.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import epochal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 6  # in each epoch
START = 1_699_999_200_000  # milliseconds: the time of the first epoch's rows
HOUR = 3_600_000  # milliseconds from one epoch's rows to those of the next
KINDS = ("a", "b/../c", "")
WORDS = ("one", "two")

Row = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of the stream, below one root."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def journal(self) -> Path:
        return self.checkpoint / "epochal"

    @property
    def targets(self) -> dict[str, Path]:
        """The target of each sink, by the sink's name."""
        return {name: self.root / name for name in ("plain", "lines", "merged", "hours", "table")}


def rows_of(epochs: int) -> Counter[Row]:
    """Every row of the first epochs, once."""
    numbers = range(epochs * ROWS)
    return Counter((n, KINDS[n % len(KINDS)], WORDS[n % len(WORDS)]) for n in numbers)


def counting(spark: SparkSession) -> DataFrame:
    """The source: six rows an epoch, an hour after those of the epoch before."""
    from pyspark.sql import functions as f

    frame = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 1)
        .option("startTimestamp", START)
        .option("advanceMillisPerBatch", HOUR)
        .load()
    )
    kinds, words = (f.array(*map(f.lit, values)) for values in (KINDS, WORDS))
    return frame.select(
        f.col("value").alias("id"),
        f.element_at(kinds, (f.col("value") % len(KINDS) + 1).cast("int")).alias("kind"),
        f.element_at(words, (f.col("value") % len(WORDS) + 1).cast("int")).alias("word"),
        f.col("timestamp").alias("at"),
    ).withWatermark("at", "0 seconds")


def to_checkpoint(spark: SparkSession, place: Place) -> DataStreamWriter:
    """The query on the checkpoint of a place."""
    return counting(spark).writeStream.option("checkpointLocation", str(place.checkpoint))


def sinks_of(place: Place) -> list[epochal.RollingFileSink | epochal.DeltaSink]:
    """One sink of each kind that needs no server."""
    at = {name: str(path) for name, path in place.targets.items()}
    hour = epochal.TimeBucket("at", "hour")
    return [
        epochal.RollingFileSink(at["plain"], bucket_by=["kind"], marker="epoch", name="plain", digest=True),
        epochal.RollingFileSink(
            at["lines"],
            format="json",
            bucket_by=["word"],
            rolling=epochal.Rolling(max_rows=8),  # of each word three rows an epoch
            name="lines",
            digest=True,
        ),
        epochal.RollingFileSink(at["merged"], rolling=epochal.Rolling(max_rows=4 * ROWS), name="merged", digest=True),
        epochal.RollingFileSink(
            at["hours"],
            format="json",
            bucket_by=[hour],
            marker=epochal.Complete(by="watermark"),
            rolling=epochal.Rolling(max_rows=1000),
            name="hours",
        ),
        epochal.DeltaSink(
            at["table"],
            partition_by=["kind"],
            properties={"delta.checkpointInterval": "3"},
            name="table",
            digest=True,
        ),
    ]


def seen(target: Path) -> Counter[Row]:
    """Every row that a reader of a target sees, with how often. Asks nothing of the code under test."""
    import pyarrow.parquet as pq

    from integration_tests.spark.checks import visible_files

    found: Counter[Row] = Counter()
    for file in visible_files(target):
        if file.suffix == ".parquet":
            rows = pq.ParquetFile(file).read().to_pylist()
        else:
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found.update((row["id"], row["kind"], row["word"]) for row in rows)
    return found
