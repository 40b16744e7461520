"""Does a long query grow? Many small epochs: the driver's Python process and the time of an epoch along the way.

    python -m benchmarks.memory [--epochs 2000] [--buckets 1] [--rolling 0] [--json]

With `--rolling N` a bucket's part is open for N epochs; with `--buckets` so many are open at a time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measure import note
from epochal import EpochWriter, Rolling, RollingFileSink, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def resident_mb() -> float:
    """This process's resident memory, without the JVM's."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Run the epochs and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--rolling", type=int, default=0, metavar="N", help="epochs that a part stays open for")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    spark = session("memory", master="local[2]")
    seen: list[tuple[float, float]] = []  # megabytes and seconds, an epoch each
    with tempfile.TemporaryDirectory(prefix="epochal-memory-") as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.mkdir()
        for epoch in range(args.epochs):
            lines = (json.dumps({"id": epoch, "bucket": bucket}) for bucket in range(args.buckets))
            (source / f"{epoch:06d}.json").write_text("\n".join(lines) + "\n")
        rolling = Rolling(max_rows=args.rolling) if args.rolling else None
        by = ["bucket"] if args.buckets > 1 else []
        writer = EpochWriter(RollingFileSink(str(target), format="json", bucket_by=by, rolling=rolling))

        def watch(frame: DataFrame, epoch: int) -> None:
            start = time.perf_counter()
            writer(frame, epoch)
            seen.append((resident_mb(), time.perf_counter() - start))
            if epoch % max(1, args.epochs // 20) == 0:
                note(f"  epoch {epoch:>6}  {seen[-1][0]:8.1f} MB  {seen[-1][1]:8.2f} s")

        frame = spark.readStream.schema("id long, bucket long").option("maxFilesPerTrigger", 1).json(str(source))
        stream = frame.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        stream.foreachBatch(watch).start().awaitTermination()
        writer.settle()
        found = spark.read.schema("id long, bucket long").option("recursiveFileLookup", "true").json(str(target))
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


if __name__ == "__main__":
    main()
