"""Scratch streams whose state is as large as asked for, to calibrate and to prove a plan. Runs inside a Spark process.

The query counts keys of a source that makes numbers: with ``keys`` of them (every update folds into few keys: FLF), or
each its own (RA). Its state is built in two runs. The first one loads `base` rows and ends with a snapshot, the second
adds `epochs` epochs of `updates` rows, whose changes a recovery replays.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins.jvm import Jvm
from epochal.spark_plugins.recovery.knobs import Setting
from epochal.spark_plugins.recovery.names import Part, Provider, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "spark.sql.streaming.stateStore."
CLASSES = {
    Provider.ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    Provider.HDFS_BACKED: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
NEVER = 1_000_000  # versions until a snapshot
DEADLINE = 600.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """One stream to build."""

    name: str
    setting: Setting
    base: int  # rows of the first run, all of their own keys
    epochs: int  # of the second run
    updates: int  # rows of each
    keys: int | None = None  # of the second run; None: each row its own

    def to_json(self) -> dict[str, Any]:
        """As JSON, for another process."""
        return {**asdict(self), "setting": self.setting.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scratch:
        """From JSON."""
        return cls(**{**value, "setting": Setting.from_json(value["setting"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What building cost: seconds of the wall and of processors for an epoch of the second run, by the median."""

    wall: float
    cpu: float


def settings_of(setting: Setting) -> dict[str, str]:
    """Spark's settings for one setting of the plan."""
    return {
        f"{PREFIX}providerClass": CLASSES[setting.provider],
        f"{PREFIX}rocksdb.changelogCheckpointing.enabled": str(setting.changelog).lower(),
        f"{PREFIX}minDeltasForSnapshot": str(setting.deltas),
        f"{PREFIX}maintenanceInterval": f"{max(1, round(setting.maintenance))}s",
        "spark.sql.shuffle.partitions": str(setting.partitions),
    }


def frame(spark: SparkSession, *, rows: int, keys: int | None, slots: int) -> DataFrame:
    """The query: counts by key."""
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", slots)
        .option("startTimestamp", 0)
        .load()
    )
    key = "value" if keys is None else f"value % {keys}"
    return numbers.selectExpr(f"{key} as key").groupBy("key").count()


class _Enough(Exception):
    """The run has made its epochs."""


def build(spark: SparkSession, scratch: Scratch, checkpoint: Path, *, slots: int) -> Built:
    """Build the state. Spark's settings of the session are changed."""
    own = settings_of(scratch.setting)
    # Snapshots come at the end of the first run, and never in the second: so the extent is what was asked for.
    first = own | {f"{PREFIX}minDeltasForSnapshot": "0", f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "false"}
    second = own | {f"{PREFIX}minDeltasForSnapshot": str(NEVER)}
    done = 0
    if scratch.base:
        _apply(spark, first)
        _run(frame(spark, rows=scratch.base, keys=None, slots=slots), checkpoint, 1)
        done = 1
        if scratch.setting.provider is Provider.HDFS_BACKED:
            _await_snapshots(checkpoint, scratch.setting.partitions)
    _apply(spark, second)
    made = frame(spark, rows=scratch.updates, keys=scratch.keys, slots=slots)
    times = _run(made, checkpoint, done + scratch.epochs) if scratch.epochs else []
    spent = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(times)] or [(0.0, 0.0)]
    return Built(wall=_median([wall for wall, _ in spent]), cpu=_median([cpu for _, cpu in spent]))


def _apply(spark: SparkSession, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        if not key.endswith("maintenanceInterval"):  # read once, when the first store is opened
            spark.conf.set(key, value)


def _run(made: DataFrame, checkpoint: Path, last: int) -> list[tuple[float, float]]:
    """Run until the epoch before `last` is committed. The next run plans `last` anew.

    Returns the clock and the processor time when each epoch began.
    """
    from pyspark.errors import StreamingQueryException

    times: list[tuple[float, float]] = []
    process = Jvm(made.sparkSession).process
    pid = -1 if process is None or process.pid is None else process.pid

    def write(batch: DataFrame, epoch: int) -> None:
        times.append((time.monotonic(), processor_seconds(pid)))
        if epoch >= last:  # before its state is touched
            raise _Enough
        batch.write.format("noop").mode("overwrite").save()

    stream = made.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    try:
        stream.foreachBatch(write).start().awaitTermination()
    except StreamingQueryException as fault:
        if _Enough.__name__ not in str(fault):
            raise
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "offsets" / name).unlink(missing_ok=True)
    return times


def _await_snapshots(checkpoint: Path, partitions: int) -> None:
    """Wait until the maintenance of HDFSBacked has written a snapshot of each partition."""
    deadline = time.monotonic() + DEADLINE
    left = list(range(partitions))
    while left and time.monotonic() < deadline:
        left = [n for n in left if not _has_snapshot(checkpoint / "state" / "0" / str(n))]
        time.sleep(0.1)


def _has_snapshot(folder: Path) -> bool:
    found = [file for name in os.listdir(folder) if (file := parse(name)) is not None]
    return any(file.part is Part.SNAPSHOT for file in found)


def processor_seconds(pid: int) -> float:
    """The processor time of a process so far, without its children. 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
