"""Rolling files against Spark's own file sink and plain foreachBatch, Parquet, one session.

    python -m benchmarks.files [--rounds 5] [--json] [--only small|large]

Each run starts from an empty target and checkpoint and ends when the last row is visible. Printed
besides: what the journal costs an epoch, and how long after commits/N an epoch is visible.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Figure, note, percentile, race, table
from benchmarks.streams import SHAPES, Stream
from epochal import EpochWriter, RollingFileSink, session
from epochal.sinks.files import published
from epochal.txn.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PEER = "Spark's file sink"
JOURNAL_CALLS = ("read", "claim", "prepare", "seal", "decide", "finish", "compact", "sweep")


class Bench:
    """One shape of input and everything that is measured on it."""

    def __init__(self, spark: SparkSession, home: Path, epochs: int, rows: int) -> None:
        self._epochs = epochs
        self._stream = Stream(spark, home, epochs, rows)
        self.journal_ms: list[float] = []
        self.visible_ms: list[float] = []

    def race(self, rounds: int) -> list[Figure]:
        runs: dict[str, Callable[[], float]] = {
            PEER: lambda: self._stream.run(self._file_sink),
            "plain foreachBatch": lambda: self._stream.run(self._plain),
            "epochal": lambda: self._stream.run(self._epochal),
        }
        return race(runs, peer=PEER, rounds=rounds)

    def _file_sink(self, target: Path, writer: DataStreamWriter) -> None:
        writer.format("parquet").start(str(target)).awaitTermination()

    def _plain(self, target: Path, writer: DataStreamWriter) -> None:
        def append(frame: DataFrame, _: int) -> None:
            frame.write.mode("append").parquet(str(target))

        writer.foreachBatch(append).start().awaitTermination()

    def _epochal(self, target: Path, writer: DataStreamWriter) -> None:
        with journal_timer() as spent:
            EpochWriter(RollingFileSink(str(target))).start(writer).awaitTermination()
        self.journal_ms.append(1000 * sum(spent) / self._epochs)
        self.visible_ms.extend(_visible_after(target))


def _visible_after(target: Path) -> list[float]:
    """Milliseconds from commits/N to the last rename of epoch N, by the file system's own clock."""
    found = []
    for epoch in published(str(target)):
        committed = os.stat(target.parent / "checkpoint" / "commits" / str(epoch.epoch)).st_ctime_ns
        shown = max(os.stat(target / name).st_ctime_ns for name, _ in epoch.files)
        found.append((shown - committed) / 1e6)
    return found


@contextmanager
def journal_timer() -> Iterator[list[float]]:
    """Collects the seconds spent in the journal."""
    spent: list[float] = []
    depth = 0
    originals = {name: getattr(Journal, name) for name in JOURNAL_CALLS}

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1
                if depth == 0:
                    spent.append(time.perf_counter() - start)

        return call

    for name, original in originals.items():
        setattr(Journal, name, wrap(original))
    try:
        yield spent
    finally:
        for name, original in originals.items():
            setattr(Journal, name, original)


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    spark = session("benchmark", master="local[2]")
    results = {}
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder:
        for name, (epochs, rows) in SHAPES.items():
            if args.only in (None, name):
                note(f"{epochs} epochs x {rows:,} rows, Parquet, local[2]")
                results[name] = _report(Bench(spark, Path(folder), epochs, rows), epochs, rows, args)
    if args.json:
        print(json.dumps(results, indent=1))


def _report(bench: Bench, epochs: int, rows: int, args: argparse.Namespace) -> dict[str, object]:
    figures = bench.race(args.rounds)
    p50, p99 = percentile(bench.visible_ms, 0.5), percentile(bench.visible_ms, 0.99)
    if not args.json:
        print(f"\n{epochs} epochs x {rows:,} rows, Parquet, local[2], {args.rounds} rounds\n{table(figures, PEER)}")
        print(f"journal: {median(bench.journal_ms):.2f} ms an epoch (worst run {max(bench.journal_ms):.2f})")
        print(f"commits/N to visible: p50 {p50:.0f} ms, p99 {p99:.0f} ms\n", flush=True)
    return {
        "epochs": epochs,
        "rows": rows,
        "seconds": {f.name: f.seconds for f in figures},
        "ratio": {f.name: f.ratio for f in figures},
        "journal_ms_per_epoch": median(bench.journal_ms),
        "visible_ms": {"p50": p50, "p99": p99},
    }


if __name__ == "__main__":
    main()
