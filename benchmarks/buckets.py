"""Rolling files with very many open parts: what an epoch costs that opens and closes some of them, and a restart.

    python -m benchmarks.buckets [--open 100000] [--touch 1000] [--epochs 10] [--on local|hdfs] [--json]

First epochs of 10,000 rows open the parts, one a bucket. Then each epoch brings the second row of some buckets, which
closes their parts, and the first row of as many new ones. The same with few open parts is what it is compared with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measure import note
from benchmarks.memory import place, resident_mb
from epochal import EpochWriter, Rolling, RollingFileSink, StatePolicy, session
from epochal.txn.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = 10_000  # buckets that an epoch opens at the beginning
RECOVERY = 0.5  # seconds
SCHEMA = "id long, bucket long"


def main() -> None:
    """Measure few open parts, then many."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.buckets", description=__doc__)
    parser.add_argument("--open", type=int, default=100_000)
    parser.add_argument("--touch", type=int, default=1000, help="parts that an epoch closes, and as many that it opens")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--on", choices=("local", "hdfs"), default="local")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-buckets-")))
        root, settings = place(args.on, home, "buckets", stack)
        spark = session("buckets", master="local[2]", conf=settings)
        found = {
            count: measure(spark, home / f"source-{count}", f"{root}/{count}", count, args)
            for count in (args.touch * args.epochs, args.open)
        }
    print(json.dumps({"on": args.on, "touch": args.touch, "open": found}))


def measure(spark: SparkSession, source: Path, root: str, count: int, args: argparse.Namespace) -> dict[str, float]:
    """Open so many parts, then run epochs that close and open some."""
    source.mkdir()
    files = 0
    for start in range(0, count, AT_ONCE):
        _feed(source, files, [(bucket, 0) for bucket in range(start, min(count, start + AT_ONCE))])
        files += 1
    opening = files
    for epoch in range(args.epochs):
        first = epoch * args.touch
        closed = [(bucket % count, 1) for bucket in range(first, first + args.touch)]
        opened = [(count + bucket, 0) for bucket in range(first, first + args.touch)]
        _feed(source, files, [*closed, *opened])
        files += 1
    taken: list[tuple[float, float]] = []  # seconds of an epoch, and of these Spark's writing

    def run(upto: int) -> None:
        writer = EpochWriter(
            RollingFileSink(f"{root}/target", format="json", bucket_by=["bucket"], rolling=Rolling(max_rows=2)),
            state=StatePolicy(recovery=RECOVERY),
        )

        def watch(frame: DataFrame, epoch: int) -> None:
            begun = time.perf_counter()
            writer(frame.coalesce(1), epoch)
            taken.append((time.perf_counter() - begun, resident_mb()))
            note(f"  {count:>8,} open: epoch {epoch:>4} {taken[-1][0]:8.2f} s  {taken[-1][1]:8.1f} MB")

        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file:{source}")
        stream = frame.writeStream.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
        stream.foreachBatch(watch).start().awaitTermination()
        writer.settle()
        assert len(taken) >= upto

    run(files)
    steady = [seconds for seconds, _ in taken[opening:]]
    from epochal.sinks.storage.hadoop import resolve

    journal_files, path = resolve(f"{root}/checkpoint/epochal")
    journal = Journal(journal_files, path)
    begun = time.perf_counter()
    entries = len(journal.read().sink_state("files"))
    restored = time.perf_counter() - begun
    sink = RollingFileSink(f"{root}/target", format="json", bucket_by=["bucket"], rolling=Rolling(max_rows=2))
    begun = time.perf_counter()
    parts, _ = sink.open_size(journal.view.sink_state("files"))
    indexed = time.perf_counter() - begun
    assert parts == count, f"{parts} parts are open instead of {count}"
    rows = spark.read.schema(SCHEMA).option("recursiveFileLookup", "true").json(f"{root}/target").count()
    assert rows == 2 * args.touch * args.epochs, f"{rows} rows are visible"
    result = {
        "epoch_s": median(steady),
        "entries": entries,
        "restore_s": restored,
        "index_s": indexed,
        "memory_mb": taken[-1][1],
    }
    note(f"  {count:>8,} open: {result}")
    return result


def _feed(source: Path, number: int, rows: list[tuple[int, int]]) -> None:
    lines = (json.dumps({"id": row, "bucket": bucket}) for bucket, row in rows)
    (source / f"{number:06d}.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
