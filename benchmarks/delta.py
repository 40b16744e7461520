"""Delta tables: epochal against Delta's own streaming sink and foreachBatch with txnAppId and txnVersion.

    python -m benchmarks.delta [--rounds 5] [--json] [--only small|large|merge|versions]
                               [--size 3x1000]

All run with Hadoop's own local file system ("as it comes") and with epochal's, each in its own session. Each run starts
from an empty table and checkpoint and ends when the last row is visible; all write log checkpoints at the same
interval. ``merge`` compares upserts with foreachBatch + MERGE; ``versions`` measures a commit on a table with a long
log.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import command
from benchmarks.disks import CORES, Disk, Sessions, Standings, race_on
from benchmarks.measure import note
from benchmarks.streams import SHAPES, SourceStream
from epochal import DeltaSink, EpochWriter
from epochal.sinks.delta.handle import NewFile
from epochal.sinks.delta.table.native import NativeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NATIVE = "Delta's streaming sink"
MERGE = "foreachBatch + MERGE"
MERGE_SHAPE = (8, 50_000)
KEYS = 200_000  # rows of the merged table: most epochs update existing rows
AT_VERSIONS = (10, 1_000, 5_000)
APP = "benchmark"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of input, to be appended or merged."""

    home: Path
    epochs: int
    rows: int
    merges: bool

    @property
    def peer(self) -> str:
        return MERGE if self.merges else NATIVE


def race(sessions: Sessions, shape: Shape, rounds: int) -> Standings:
    """All competitors on both disks."""
    sessions.call(Disk.AS_IT_COMES, partial(prepare, shape))

    def one(name: str, disk: Disk) -> float:
        return sessions.call(disk, partial(run, shape, name))

    names = MERGES if shape.merges else APPENDS
    return race_on(tuple(Disk), {name: partial(one, name) for name in names}, peer=shape.peer, rounds=rounds)


def prepare(shape: Shape, spark: SparkSession) -> None:
    """Write the source once, for all competitors on both disks."""
    SourceStream(spark, shape.home, shape.epochs, shape.rows)


def run(shape: Shape, name: str, spark: SparkSession) -> float:
    """One run of one competitor."""
    stream = SourceStream(spark, shape.home, shape.epochs, shape.rows)
    if shape.merges:
        return stream.run(partial(MERGES[name], spark), "delta", min(KEYS, shape.epochs * shape.rows))
    return stream.run(APPENDS[name], "delta")


def _native(target: Path, writer: DataStreamWriter) -> None:
    writer.format("delta").start(str(target)).awaitTermination()


def _for_each_batch(target: Path, writer: DataStreamWriter) -> None:
    def append(frame: DataFrame, epoch: int) -> None:
        ours = frame.write.format("delta").mode("append").option("txnAppId", APP)
        ours.option("txnVersion", epoch).save(str(target))

    writer.foreachBatch(append).start().awaitTermination()


def _epochal(target: Path, writer: DataStreamWriter) -> None:
    EpochWriter(DeltaSink(str(target))).start(writer).awaitTermination()


def _merge(spark: SparkSession, target: Path, writer: DataStreamWriter) -> None:
    from delta.tables import DeltaTable

    _empty_table(spark, target)

    def merge(frame: DataFrame, _: int) -> None:
        into = DeltaTable.forPath(frame.sparkSession, str(target)).alias("t")
        rows = _keyed(frame).alias("s")
        into.merge(rows, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    writer.foreachBatch(merge).start().awaitTermination()


def _upsert(spark: SparkSession, target: Path, writer: DataStreamWriter) -> None:
    _empty_table(spark, target)
    upserts = EpochWriter(DeltaSink(str(target), mode="upsert", keys=["id"]))

    def batch(frame: DataFrame, epoch: int) -> None:
        upserts(_keyed(frame), epoch)

    writer.foreachBatch(batch).start().awaitTermination()
    upserts.settle()


def _empty_table(spark: SparkSession, target: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{target}` (id bigint, s string, d double, p int) USING delta")


APPENDS = {NATIVE: _native, "foreachBatch + txnVersion": _for_each_batch, "epochal": _epochal}
MERGES = {MERGE: _merge, "epochal": _upsert}


def _keyed(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(f"id % {KEYS} id", "s", "d", "p")


def commit_costs(home: Path) -> dict[int, float]:
    """Milliseconds of a commit at some versions of one table: the median of nine."""
    place = home / "long"
    shutil.rmtree(place, ignore_errors=True)
    long = NativeTable(str(place))
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    long.create(schema, (), {})
    costs: dict[int, float] = {}
    taken: list[float] = []
    for epoch in range(max(AT_VERSIONS) + 5):
        name = f"part-{epoch:012d}.parquet"
        pq.write_table(pa.table({"id": [epoch]}), place / name)
        start = time.perf_counter()
        long.state()
        new = NewFile(name, (place / name).stat().st_size, {}, '{"numRecords":1}')
        long.commit([new], replace=False, lineage=APP, epoch=epoch, note="")
        taken = [*taken[-8:], 1000 * (time.perf_counter() - start)]
        if epoch - 4 in AT_VERSIONS:
            costs[epoch - 4] = median(taken)
            note(f"  version {epoch - 4:>5}: {costs[epoch - 4]:.1f} ms a commit")
    return costs


def main() -> None:
    """Race and report."""
    shapes = {**SHAPES, "merge": MERGE_SHAPE}
    args = command.parser("delta", __doc__, only=[*shapes, "versions"]).parse_args()
    with command.results(args) as results, Sessions() as sessions:
        if args.only in (None, "versions"):
            costs = commit_costs(results.home)
            lines = [f"  version {version:>5}: {cost:.1f} ms a commit" for version, cost in costs.items()]
            results.add("commit_ms_at_version", costs, "\n".join(["one commit on a long log", *lines]))
        for name, (epochs, rows) in command.sizes(args, shapes).items():
            how = ", upserts" if name == "merge" else ""
            title = f"{epochs} epochs x {rows:,} rows, Delta{how}, local[{CORES}], {args.rounds} rounds"
            command.titled(title)
            standings = race(sessions, Shape(results.home, epochs, rows, name == "merge"), args.rounds)
            results.add(name, standings.as_json(), f"{title}\n{standings.table()}")


if __name__ == "__main__":
    main()
