"""Rolling files against Spark's own file sink and plain foreachBatch, Parquet.

    python -m benchmarks.files [--rounds 5] [--json] [--only small|large] [--size 3x1000]

All run with Hadoop's own local file system ("as it comes") and with epochal's, each in its own session. Each run starts
from an empty target and checkpoint and ends when the last row is visible. It also prints the journal's time for each
epoch, and the time from commits/N until the epoch is visible.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.disks import CORES, Disk, Sessions, Standings, race_on
from benchmarks.measure import percentile
from benchmarks.streams import SHAPES, SourceStream
from epochal import EpochWriter, RollingFileSink
from epochal.sinks.files import published
from epochal.txn.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PEER = "Spark's file sink"
EPOCHAL = "epochal"
JOURNAL_CALLS = ("read", "claim", "prepare", "seal", "decide", "finish", "compact", "sweep")


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The times of one run; the milliseconds are those of epochal."""

    seconds: float
    journal_ms: float
    visible_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of input."""

    home: Path
    epochs: int
    rows: int


class Bench:
    """Runs and measures all competitors on one shape."""

    def __init__(self, sessions: Sessions, shape: Shape) -> None:
        self._sessions, self._shape = sessions, shape
        self.journal_ms: dict[Disk, list[float]] = {disk: [] for disk in Disk}
        self.visible_ms: dict[Disk, list[float]] = {disk: [] for disk in Disk}

    def race(self, rounds: int) -> Standings:
        self._sessions.call(Disk.AS_IT_COMES, partial(prepare, self._shape))
        return race_on(tuple(Disk), {name: partial(self._run, name) for name in RUNS}, peer=PEER, rounds=rounds)

    def visible(self, disk: Disk) -> dict[str, float]:
        """Milliseconds from commits/N until an epoch is visible."""
        found = self.visible_ms[disk]
        return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99)}

    def _run(self, name: str, disk: Disk) -> float:
        took = self._sessions.call(disk, partial(run, self._shape, name))
        if name == EPOCHAL:
            self.journal_ms[disk].append(took.journal_ms)
            self.visible_ms[disk].extend(took.visible_ms)
        return took.seconds


def prepare(shape: Shape, spark: SparkSession) -> None:
    """Write the source once, for all competitors on both disks."""
    SourceStream(spark, shape.home, shape.epochs, shape.rows)


def run(shape: Shape, name: str, spark: SparkSession) -> RunTimes:
    """One run of one competitor."""
    stream = SourceStream(spark, shape.home, shape.epochs, shape.rows)
    with journal_timer() as spent:
        seconds = stream.run(RUNS[name])
    visible = _visible_after(stream.place / "target") if name == EPOCHAL else []
    return RunTimes(seconds, 1000 * sum(spent) / shape.epochs, tuple(visible))


def _file_sink(target: Path, writer: DataStreamWriter) -> None:
    writer.format("parquet").start(str(target)).awaitTermination()


def _plain(target: Path, writer: DataStreamWriter) -> None:
    def append(frame: DataFrame, _: int) -> None:
        frame.write.mode("append").parquet(str(target))

    writer.foreachBatch(append).start().awaitTermination()


def _epochal(target: Path, writer: DataStreamWriter) -> None:
    EpochWriter(RollingFileSink(str(target))).start(writer).awaitTermination()


RUNS = {PEER: _file_sink, "plain foreachBatch": _plain, EPOCHAL: _epochal}


def _visible_after(target: Path) -> list[float]:
    """Milliseconds from commits/N to the last rename of epoch N, by the file system's clock."""
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
    args = command.parser("files", __doc__, only=SHAPES).parse_args()
    with command.results(args) as results, Sessions() as sessions:
        for name, (epochs, rows) in command.sizes(args, SHAPES).items():
            shape = Shape(results.home, epochs, rows)
            title = command.titled(f"{epochs} epochs x {rows:,} rows, Parquet, local[{CORES}], {args.rounds} rounds")
            bench = Bench(sessions, shape)
            standings = bench.race(args.rounds)
            results.add(name, _found(bench, shape, standings), f"{title}\n{_text(bench, standings)}")


def _text(bench: Bench, standings: Standings) -> str:
    lines = [standings.table()]
    for disk, spent in bench.journal_ms.items():
        visible = bench.visible(disk)
        lines.append(f"{EPOCHAL}, {disk}:")
        lines.append(f"  journal: {median(spent):.2f} ms an epoch (worst run {max(spent):.2f})")
        lines.append(f"  commits/N to visible: p50 {visible['p50']:.0f} ms, p99 {visible['p99']:.0f} ms")
    return "\n".join(lines)


def _found(bench: Bench, shape: Shape, standings: Standings) -> dict[str, object]:
    return {
        "epochs": shape.epochs,
        "rows": shape.rows,
        **standings.as_json(),
        "journal_ms_per_epoch": {disk: median(spent) for disk, spent in bench.journal_ms.items()},
        "visible_ms": {disk: bench.visible(disk) for disk in Disk},
    }


if __name__ == "__main__":
    main()
