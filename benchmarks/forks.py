"""How many processes Spark's JVM starts in an epoch, with Hadoop's own local file system and with epochal's.

    python -m benchmarks.forks [--epochs 50] [--json]

Java's flight recorder counts them. Counted is what starts between the last commit of the warm-up and the last commit of
all, whoever starts it: Spark itself runs ``rm`` for folders of RocksDB now and then, on any file system.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.disks import CORES, Disk, Sessions
from benchmarks.measure import note
from benchmarks.streams import Stream
from epochal import DeltaSink, EpochWriter, RollingFileSink
from epochal.sinks.spark.sessions import set_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WARM_UP = 10  # epochs
ROWS = 1_000  # an epoch
GROUPS = 10  # the values of p
EVENT = "jdk.ProcessStart"
STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state"
    ".RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
RETAINED = "spark.sql.streaming.minBatchesToRetain"
LEAST_RETAINED = 100  # Spark's default


@dataclass(frozen=True, slots=True)
class Start:
    """A process that the JVM started."""

    at: float  # seconds since 1970
    command: str


def _file_sink(stream: Stream, _: int) -> None:
    def work(target: Path, writer: DataStreamWriter) -> None:
        writer.format("parquet").start(str(target)).awaitTermination()

    stream.run(work)


def _epochal_files(stream: Stream, _: int) -> None:
    stream.run(_into_files)


def _epochal_delta(stream: Stream, _: int) -> None:
    def work(target: Path, writer: DataStreamWriter) -> None:
        EpochWriter(DeltaSink(str(target))).start(writer).awaitTermination()

    stream.run(work, "delta")


def _stateful(stream: Stream, epochs: int) -> None:
    def counts(frame: DataFrame) -> DataFrame:
        return frame.groupBy("p").count()

    def work(target: Path, writer: DataStreamWriter) -> None:
        _into_files(target, writer.outputMode("update"))

    stream.run(work, distinct=GROUPS * epochs, query=counts)


def _into_files(target: Path, writer: DataStreamWriter) -> None:
    EpochWriter(RollingFileSink(str(target))).start(writer).awaitTermination()


QUERIES: dict[str, Callable[[Stream, int], None]] = {
    "Spark's file sink": _file_sink,
    "epochal, files": _epochal_files,
    "epochal, Delta": _epochal_delta,
    "stateful, epochal, files": _stateful,
}


def count(home: Path, epochs: int, name: str, spark: SparkSession) -> dict[str, int]:
    """The processes started in all steady epochs of one query, by command."""
    stream = Stream(spark, home, WARM_UP + epochs, ROWS)
    # Commits tell when an epoch ended: Spark must not clear away that of the last warm-up.
    retained = {RETAINED: str(max(LEAST_RETAINED, WARM_UP + epochs + 1))}
    with set_for(spark, {**STATE, **retained}), recorded(spark, home / "recording.jfr") as starts:
        QUERIES[name](stream, WARM_UP + epochs)
    commits = stream.place / "checkpoint" / "commits"
    first, last = (os.stat(commits / str(epoch)).st_ctime for epoch in (WARM_UP - 1, WARM_UP + epochs - 1))
    commands = Counter(Path(start.command.split()[0]).name for start in starts if first < start.at <= last)
    return dict(commands.most_common())


@contextmanager
def recorded(spark: SparkSession, file: Path) -> Iterator[list[Start]]:
    """Collects the processes that the JVM starts; they are there at the end."""
    jvm: Any = spark._jvm
    path = jvm.java.io.File(str(file)).toPath()
    recording = jvm.jdk.jfr.Recording()
    starts: list[Start] = []
    try:
        recording.enable(EVENT)
        recording.start()
        yield starts
        recording.stop()
        recording.dump(path)
        starts += [
            Start(event.getStartTime().toEpochMilli() / 1000, event.getString("command"))
            for event in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(path)
            if event.getEventType().getName() == EVENT
        ]
    finally:
        recording.close()


def main() -> None:
    """Count and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forks", description=__doc__)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    found: dict[str, dict[Disk, dict[str, int]]] = {name: {} for name in QUERIES}
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder, Sessions() as sessions:
        for name, counts in found.items():
            for disk in Disk:
                counts[disk] = sessions.call(disk, partial(count, Path(folder), args.epochs, name))
                note(f"  {name}, {disk}: {sum(counts[disk].values())} processes in {args.epochs} epochs")
    if args.json:
        print(json.dumps({"epochs": args.epochs, "started": found}, indent=1))
        return
    print(f"\nprocesses started an epoch, {args.epochs} epochs x {ROWS:,} rows, local[{CORES}]")
    for disk in Disk:
        print(f"\n{disk}")
        for name, counts in found.items():
            an_epoch = sum(counts[disk].values()) / args.epochs
            print(f"  {name:<25} {an_epoch:>6.1f}  {_commands(counts[disk], args.epochs)}")


def _commands(counts: dict[str, int], epochs: int) -> str:
    return ", ".join(f"{command} {number / epochs:.1f}" for command, number in counts.items()) or "none"


if __name__ == "__main__":
    main()
