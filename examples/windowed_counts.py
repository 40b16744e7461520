"""Counts visits per page in windows of ten minutes, and keeps the counts up to date in a Delta table.

    python examples/windowed_counts.py [FOLDER]

A stateful query: Spark's state, the table and the checkpoint stay at the same epoch. The query's output mode must fit
the sink:

    outputMode   an epoch has                      fits
    update       the windows that changed          Delta mode="upsert", Cassandra (default mode="upsert")
    append       windows that the watermark        any sink: each window comes once
                 has closed
    complete     all windows, each time            Delta mode="complete"; refused for Cassandra mode="accumulate"

Files and Delta mode="append" would keep every version of a window in update mode.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import functions as f

import epochal
from epochal import DeltaSink, EpochWriter


def main(folder: Path) -> None:
    """Count all visits that have arrived, then end."""
    put_sample_visits(folder / "visits")
    spark = epochal.session("visits")
    visits = spark.readStream.schema("page STRING, at TIMESTAMP").option("maxFilesPerTrigger", 1)
    windows = (
        visits.json(str(folder / "visits"))
        .withWatermark("at", "20 minutes")
        .groupBy("page", f.window("at", "10 minutes"))
        .count()
        .select("page", f.col("window.start").alias("start"), f.col("count").alias("visits"))
    )

    counts = DeltaSink(str(folder / "counts"), mode="upsert", keys=["page", "start"])
    query = EpochWriter(counts).start(
        windows.writeStream.outputMode("update")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "counts-checkpoint"))
    )
    query.awaitTermination()

    for row in spark.read.format("delta").load(str(folder / "counts")).sort("start", "page").collect():
        print(f"{row['start']:%H:%M} {row['page']}: {row['visits']} visits")


def put_sample_visits(folder: Path) -> None:
    """Write three files of sixty visits, unless they exist: a visit every 15 s."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for file in range(3):
            seconds = [15 * n for n in range(60 * file, 60 * file + 60)]
            at = [f"2026-11-16T12:{s // 60:02}:{s % 60:02}Z" for s in seconds]
            rows = [{"page": "/about" if n % 4 == 0 else "/home", "at": time} for n, time in enumerate(at)]
            (folder / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
            os.utime(folder / f"{file}.json", (file, file))  # Spark reads the oldest first


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "visits-example"))
