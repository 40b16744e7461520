"""What an epoch takes after many others, for `benchmarks.scaling`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.measure import note
from benchmarks.scale_model import Shape, Stream
from epochal.sinks.storage.sink_files import LocalSinkFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COUNTED = 50  # epochs of which the median is taken
SCHEMA = "id long"
RETAINED = "spark.sql.streaming.minBatchesToRetain"  # else Spark removes the files whose times are looked at


class LocalStore(LocalSinkFiles):
    """A local disk, with files that nobody has written."""

    def put(self, path: str, length: int) -> None:
        """A sparse file of this length."""
        self.make_folder(path.rpartition("/")[0])
        with open(path, "wb") as file:
            file.truncate(length)


def without_spark(home: Path, sizes: Iterable[int]) -> dict[str, Any]:
    """One stream, looked at after so many epochs: by the coordinator and the file sink, on a local disk.

    Nothing is brought to stable storage: how long that takes is the disk's affair.
    """
    stream = Stream(LocalStore(sync=False), str(home / "stream"), [str(home / "target")])
    found: dict[str, Any] = {}
    for size in sorted(sizes):
        stream.run(Shape(), max(0, size - stream.epochs))
        walls, cpus = [], []
        for _ in range(COUNTED):
            wall, cpu = time.perf_counter(), time.process_time()
            stream.run(Shape())
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        begun = time.process_time()
        stream.restart()
        found[str(size)] = {"wall_s": median(walls), "cpu_s": median(cpus), "start_cpu_s": time.process_time() - begun}
        note(f"  after {size:>6,} epochs: {found[str(size)]}")
    return found


def with_spark(
    spark: SparkSession, home: Path, epochs: int, works: Mapping[str, Callable[[Path, DataStreamWriter], None]]
) -> dict[str, Any]:
    """Epochs of one row: what the first and the last tenth of them take, by the times of commits/N."""
    spark.conf.set(RETAINED, str(epochs + 1))
    source = home / "small"
    source.mkdir()
    for epoch in range(epochs):
        (source / f"{epoch:06d}.json").write_text(json.dumps({"id": epoch}) + "\n")
    found: dict[str, Any] = {}
    for name, work in works.items():
        place = home / "run"
        shutil.rmtree(place, ignore_errors=True)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        writer = stream.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        work(place / "target", writer)
        commits = sorted(
            (int(path.name), path.stat().st_mtime)
            for path in (place / "checkpoint" / "commits").iterdir()
            if path.name.isdecimal()
        )
        tenth = max(2, len(commits) // 10)
        first, last = commits[1 : tenth + 1], commits[-tenth:]  # without the first, which waits for what a start makes
        found[name] = {
            "first_s": (first[-1][1] - first[0][1]) / (len(first) - 1),
            "last_s": (last[-1][1] - last[0][1]) / (len(last) - 1),
        }
        note(f"  {name}: {found[name]}")
    return {"with Spark": found}
