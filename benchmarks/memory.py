"""Does memory grow in a long query? Runs many small epochs, and measures the driver's memory and the time of each.

    python -m benchmarks.memory [--epochs 2000] [--buckets 1] [--rolling 0] [--on local|hdfs] [--json]

With `--rolling N` the part of a bucket stays open for N epochs; `--buckets` is the number of open parts. Each epoch has
a row for each bucket. Half-way the query stops and restarts with three times as many partitions: that must not change
the rows and files.
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

from benchmarks.hdfs import hdfs
from benchmarks.measure import note
from epochal import EpochWriter, Rolling, RollingFileSink, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, bucket long"
# How Spark waits for each small file: 2 ms, then doubled, 13 times. With 10,000 files this is most of the time.
WAITING = "spark.hadoop.dfs.client.block.write.locateFollowingBlock"
IMPATIENT = {f"{WAITING}.initial.delay.ms": "2", f"{WAITING}.retries": "13"}


def resident_mb() -> float:
    """This process's resident memory, without the JVM's."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def place(
    on: str, home: Path, name: str, stack: contextlib.ExitStack, heap: str | None = None
) -> tuple[str, dict[str, str]]:
    """Where to write, on the local disk or on an HDFS that runs until the stack ends, and the session's settings."""
    if on == "local":
        return f"file:{home}", {}
    uri, settings = stack.enter_context(hdfs(heap))
    return f"{uri}/{name}", settings | IMPATIENT


def main() -> None:
    """Run the epochs and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--rolling", type=int, default=0, metavar="N", help="epochs that a part stays open for")
    parser.add_argument("--on", choices=("local", "hdfs"), default="local")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-memory-")))
        root, settings = place(args.on, home, "memory", stack)
        spark = session("memory", master="local[2]", conf=settings)
        seen: list[tuple[float, float]] = []  # megabytes and seconds, an epoch each
        for partitions, epochs in ((1, range(args.epochs // 2)), (3, range(args.epochs // 2, args.epochs))):
            _feed(home / "source", epochs, args.buckets)
            _run(spark, home / "source", root, partitions, args, seen)
        found = spark.read.schema(SCHEMA).option("recursiveFileLookup", "true").json(f"{root}/target")
        rows, files = found.count(), len(found.inputFiles())
    tenth = max(1, args.epochs // 10)
    result = {
        "epochs": args.epochs,
        "buckets": args.buckets,
        "rows": rows,
        "files": files,
        "after_a_tenth_mb": seen[tenth - 1][0],
        "at_the_end_mb": seen[-1][0],
        "first_tenth_s": median(seconds for _, seconds in seen[:tenth]),
        "last_tenth_s": median(seconds for _, seconds in seen[-tenth:]),
    }
    print(json.dumps(result) if args.json else "\n".join(f"{k:<18} {v:>10.2f}" for k, v in result.items()))
    parts = args.epochs // args.rolling if args.rolling else args.epochs
    shown = args.buckets * parts * (args.rolling or 1)
    if rows != shown or (args.rolling and files != args.buckets * parts):
        raise SystemExit(f"{rows} rows in {files} files; the policy requires {shown} in {args.buckets * parts}")


def _feed(source: Path, epochs: range, buckets: int) -> None:
    source.mkdir(exist_ok=True)
    for epoch in epochs:
        lines = (json.dumps({"id": epoch, "bucket": bucket}) for bucket in range(buckets))
        (source / f"{epoch:06d}.json").write_text("\n".join(lines) + "\n")


def _run(
    spark: SparkSession,
    source: Path,
    root: str,
    partitions: int,
    args: argparse.Namespace,
    seen: list[tuple[float, float]],
) -> None:
    rolling = Rolling(max_rows=args.rolling) if args.rolling else None
    by = ["bucket"] if args.buckets > 1 else []
    writer = EpochWriter(RollingFileSink(f"{root}/target", format="json", bucket_by=by, rolling=rolling))

    def watch(frame: DataFrame, epoch: int) -> None:
        start = time.perf_counter()
        writer(frame.repartition(partitions), epoch)
        seen.append((resident_mb(), time.perf_counter() - start))
        if epoch % max(1, args.epochs // 20) == 0:
            note(f"  epoch {epoch:>6}  {seen[-1][0]:8.1f} MB  {seen[-1][1]:8.2f} s")

    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file:{source}")
    stream = frame.writeStream.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
    stream.foreachBatch(watch).start().awaitTermination()
    writer.settle()


if __name__ == "__main__":
    main()
