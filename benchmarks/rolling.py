"""Parts that stay open over epochs against Spark's own file sink and plain foreachBatch, one session.

    python -m benchmarks.rolling [--rounds 5] [--json] [--only small|large] [--on local|hdfs] [--format parquet|json]

Each run starts from an empty target and checkpoint and ends when the last row is visible: parts close at half of all
rows. Printed besides: how many files each makes, and what an epoch costs that is not Spark's own writing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter

from benchmarks.measure import Figure, note, race, table, timed
from benchmarks.streams import SCHEMA, Stream
from epochal import EpochWriter, Rolling, RollingFileSink, session
from epochal.sinks.hadoop import resolve
from epochal.testing import servers
from epochal.txn.coordinator import Coordinator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PEER = "Spark's file sink"
SHAPES = {"small": (20, 50_000), "large": (20, 500_000)}
Work = Callable[[str, "DataStreamWriter"], None]


class Bench:
    """One shape of input, one file system, one format."""

    def __init__(self, spark: SparkSession, home: Path, root: str, shape: tuple[int, int], format_: str) -> None:
        self._spark, self._root, self._format = spark, root, format_
        self._epochs, self._rows = shape
        Stream(spark, home, *shape)  # makes the source
        self._source = home / f"source-{self._epochs}x{self._rows}"
        self.files: dict[str, int] = {}
        self.ours_ms: list[float] = []

    def race(self, rounds: int) -> list[Figure]:
        ways: dict[str, Work] = {
            PEER: self._file_sink,
            "plain foreachBatch": self._plain,
            "epochal, rolling": self._epochal,
        }
        return race({name: self._run(name, work) for name, work in ways.items()}, peer=PEER, rounds=rounds)

    def _file_sink(self, target: str, writer: DataStreamWriter) -> None:
        writer.format(self._format).start(target).awaitTermination()

    def _plain(self, target: str, writer: DataStreamWriter) -> None:
        def append(frame: DataFrame, _: int) -> None:
            frame.write.mode("append").format(self._format).save(target)

        writer.foreachBatch(append).start().awaitTermination()

    def _epochal(self, target: str, writer: DataStreamWriter) -> None:
        rolling = Rolling(max_rows=self._epochs * self._rows // 2)
        with our_own_time() as spent:
            sink = RollingFileSink(target, format=self._format, rolling=rolling)
            EpochWriter(sink).start(writer).awaitTermination()
        self.ours_ms.append(1000 * sum(spent) / self._epochs)

    def _run(self, name: str, work: Work) -> Callable[[], float]:
        def run() -> float:
            files, place = resolve(f"{self._root}/run")
            files.delete(place)
            stream = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            writer = stream.parquet(f"file:{self._source}/*").writeStream
            writer = writer.option("checkpointLocation", f"{self._root}/run/checkpoint").trigger(availableNow=True)
            target = f"{self._root}/run/target"
            seconds = timed(lambda: work(target, writer))
            found = self._spark.read.schema(SCHEMA).format(self._format).load(target)
            if (count := found.count()) != self._epochs * self._rows:
                raise SystemExit(f"{name}: {count} rows instead of {self._epochs * self._rows}: no figure for that")
            self.files[name] = len(found.inputFiles())
            return seconds

        return run


@contextmanager
def our_own_time() -> Iterator[list[float]]:
    """Seconds in the coordinator, without those in Spark's writer."""
    spent: list[float] = []

    def wrap(owner: Any, name: str, sign: int) -> Callable[[], None]:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent.append(sign * (time.perf_counter() - start))

        setattr(owner, name, call)
        return lambda: setattr(owner, name, original)

    undo = [wrap(Coordinator, "run", 1), wrap(Coordinator, "settle", 1), wrap(DataFrameWriter, "save", -1)]
    try:
        yield spent
    finally:
        for back in undo:
            back()


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--on", choices=("local", "hdfs"))
    parser.add_argument("--format", choices=("parquet", "json"), default="parquet")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    results = []
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-bench-")))
        roots = {"local": f"file:{home}"} if args.on != "hdfs" else {}
        settings: dict[str, str] = {}
        if args.on != "local":
            cluster = stack.enter_context(servers.hdfs())
            roots["hdfs"] = f"{cluster.uri}/bench"
            settings = {key: value for key, value in cluster.settings.items() if "defaultFS" not in key}
        spark = session("benchmark", master="local[2]", conf=settings)
        for place, root in roots.items():
            for name, shape in SHAPES.items():
                if args.only in (None, name):
                    results.append(_report(Bench(spark, home, root, shape, args.format), place, shape, args))
    if args.json:
        print(json.dumps(results, indent=1))


def _report(bench: Bench, place: str, shape: tuple[int, int], args: argparse.Namespace) -> dict[str, object]:
    title = f"{shape[0]} epochs x {shape[1]:,} rows, {args.format}, {place}, local[2], {args.rounds} rounds"
    note(title)
    figures = bench.race(args.rounds)
    if not args.json:
        print(f"\n{title}\n{table(figures, PEER)}")
        print("files: " + ", ".join(f"{name} {count}" for name, count in bench.files.items()))
        print(
            f"epochal's own: {median(bench.ours_ms):.0f} ms an epoch (worst run {max(bench.ours_ms):.0f})\n", flush=True
        )
    return {
        "on": place,
        "format": args.format,
        "epochs": shape[0],
        "rows": shape[1],
        "seconds": {f.name: f.seconds for f in figures},
        "ratio": {f.name: f.ratio for f in figures},
        "files": bench.files,
        "own_ms_per_epoch": median(bench.ours_ms),
    }


if __name__ == "__main__":
    main()
