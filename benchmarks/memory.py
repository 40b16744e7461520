"""Does the driver's Python process grow? Many small epochs, its resident memory along the way.

python -m benchmarks.memory [--epochs 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.measure import note
from epochal import EpochWriter, RollingFileSink, session


def resident_mb() -> float:
    """This process's resident memory, without the JVM's."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Run the epochs and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    spark = session("memory", master="local[2]")
    seen: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="epochal-memory-") as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.mkdir()
        for epoch in range(args.epochs):
            (source / f"{epoch:06d}.json").write_text(json.dumps({"id": epoch}) + "\n")
        writer = EpochWriter(RollingFileSink(str(target), format="json"))

        def watch(frame: object, epoch: int) -> None:
            writer(frame, epoch)  # type: ignore[arg-type]  # what foreachBatch passes
            if epoch % max(1, args.epochs // 20) == 0:
                seen.append((epoch, resident_mb()))
                note(f"  epoch {epoch:>6}  {seen[-1][1]:8.1f} MB")

        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source)).writeStream
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        stream.foreachBatch(watch).start().awaitTermination()
        writer.settle()
        rows = spark.read.json(str(target)).count()
        seen.append((args.epochs, resident_mb()))
    early = seen[len(seen) // 10][1]
    result = {"epochs": args.epochs, "rows": rows, "after_a_tenth_mb": early, "at_the_end_mb": seen[-1][1]}
    print(json.dumps(result) if args.json else "\n".join(f"{k:<18} {v:>10.1f}" for k, v in result.items()))


if __name__ == "__main__":
    main()
