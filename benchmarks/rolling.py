"""Parts that stay open over epochs against Spark's own file sink and plain foreachBatch, one session.

    python -m benchmarks.rolling [--rounds 5] [--json] [--only small|large] [--on local|hdfs] [--format parquet|json]
                                 [--flink] [--files 1]

Each run starts from an empty target and checkpoint and ends when the last row is visible: parts close at half of all
rows. Printed besides: how many files each makes, and what an epoch costs that is not Spark's own writing.

With ``--flink`` Flink's FileSink copies the same rows, in a Java of its own with Spark's heap and as many cores. Its
epochs are checkpoints and follow the clock: the interval is taken from the run before, so that there are about as many
as Spark has, or as many as it can make (one may take longer than the shortest interval); how many there were is
told. Read its seconds with what differs besides: it works on two files of the source at a time, where a micro-batch has
one file and so one task (with ``--files 2`` it has two of half the size); it keeps one job for all epochs, where Spark
plans each; both its writers close a file at each checkpoint, so that no part stays open; on a local disk it forces its
data files and checkpoints down (fsync), as epochal does its own, and Spark's sinks do not. How much of the difference
is Spark's own is told by a query that reads the same rows and writes nothing ("Spark, no sink"): no sink of Spark's can
be faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter

from benchmarks.flink import Flink, NoFlink, flink
from benchmarks.flink.pace import Paced
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
FLINK = "Flink's FileSink"
NO_SINK = "Spark, no sink"
CORES = 2
PACING = 5  # runs by which Flink finds its pace; if it is warmer for it than the others, that is to its favour
SHAPES = {"small": (20, 50_000), "large": (20, 500_000)}
Work = Callable[[str, "DataStreamWriter"], None]
Copy = Callable[[str, str], float]  # with a target and a place for checkpoints; the seconds it took


class Bench:
    """One shape of input, one file system, one format."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        root: str,
        shape: tuple[int, int],
        format_: str,
        files: int,
        other: Flink | None,
    ) -> None:
        self._spark, self._root, self._format, self._files = spark, root, format_, files
        self._epochs, self._rows = shape
        self._source = Stream(spark, home, self._epochs * files, self._rows // files).source
        self.files: dict[str, int] = {}
        self.ours_ms: list[float] = []
        self.flink = Paced(other, f"file:{self._source}", self._epochs) if other else None

    def race(self, rounds: int) -> list[Figure]:
        ways: dict[str, Copy] = {
            PEER: self._by_spark(self._file_sink),
            "plain foreachBatch": self._by_spark(self._plain),
            "epochal, rolling": self._by_spark(self._epochal),
        }
        if self.flink:
            ways[NO_SINK] = self._by_spark(self._no_sink)
            ways[FLINK] = self.flink.copy
            for _ in range(PACING):
                self._run(FLINK, self.flink.copy)()
            self.flink.runs.clear()
        return race({name: self._run(name, copy) for name, copy in ways.items()}, peer=PEER, rounds=rounds)

    def _file_sink(self, target: str, writer: DataStreamWriter) -> None:
        writer.format(self._format).start(target).awaitTermination()

    def _no_sink(self, _: str, writer: DataStreamWriter) -> None:
        writer.format("noop").start().awaitTermination()

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

    def _by_spark(self, work: Work) -> Copy:
        def copy(target: str, checkpoints: str) -> float:
            stream = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self._files)
            writer = stream.parquet(f"file:{self._source}/*").writeStream
            writer = writer.option("checkpointLocation", checkpoints).trigger(availableNow=True)
            return timed(lambda: work(target, writer))

        return copy

    def _run(self, name: str, copy: Copy) -> Callable[[], float]:
        def run() -> float:
            files, place = resolve(f"{self._root}/run")
            files.delete(place)
            target = f"{self._root}/run/target"
            seconds = copy(target, f"{self._root}/run/checkpoint")
            if name == NO_SINK:
                return seconds
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
    parser.add_argument("--files", type=int, default=1, help="files of the source in an epoch, each of them a task")
    parser.add_argument("--flink", action="store_true", help="Flink's FileSink too: needs a JDK, fetches 160 MB once")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    if args.flink and args.format != "parquet":
        parser.error("--flink copies Parquet only")
    results = []
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-bench-")))
        roots = {"local": f"file:{home}"} if args.on != "hdfs" else {}
        settings: dict[str, str] = {}
        if args.on != "local":
            cluster = stack.enter_context(servers.hdfs())
            roots["hdfs"] = f"{cluster.uri}/bench"
            settings = {key: value for key, value in cluster.settings.items() if "defaultFS" not in key}
        spark = session("benchmark", master=f"local[{CORES}]", conf=settings)
        other = _flink(stack, spark, home, settings) if args.flink else None
        for place, root in roots.items():
            for name, shape in SHAPES.items():
                if args.only in (None, name):
                    bench = Bench(spark, home, root, shape, args.format, args.files, other)
                    results.append(_report(bench, place, shape, args))
    if args.json:
        print(json.dumps(results, indent=1))


def _flink(stack: contextlib.ExitStack, spark: SparkSession, home: Path, settings: Mapping[str, str]) -> Flink | None:
    memory = spark.sparkContext.getConf().get("spark.driver.memory", "1g")
    assert memory is not None
    hadoop = {key.removeprefix("spark.hadoop."): value for key, value in settings.items()}
    try:
        return stack.enter_context(flink(home, memory=memory, cores=CORES, hadoop=hadoop, tell=note))
    except NoFlink as fault:
        note(f"without Flink: {fault}")
        return None


def _report(bench: Bench, place: str, shape: tuple[int, int], args: argparse.Namespace) -> dict[str, object]:
    sources = f"{args.files} source file{'s' if args.files > 1 else ''} an epoch"
    title = f"{shape[0]} epochs x {shape[1]:,} rows, {sources}, {args.format}, {place}, local[{CORES}]"
    title += f", {args.rounds} rounds"
    note(title)
    figures = bench.race(args.rounds)
    runs = bench.flink.runs[1:] if bench.flink else []  # the first one warmed up
    if not args.json:
        print(f"\n{title}\n{table(figures, PEER)}")
        print("files: " + ", ".join(f"{name} {count}" for name, count in bench.files.items()))
        print(f"epochal's own: {median(bench.ours_ms):.0f} ms an epoch (worst run {max(bench.ours_ms):.0f})")
        if runs:
            checkpoints = [copied.checkpoints for _, copied in runs]
            count = f"{median(checkpoints):.0f} a run ({min(checkpoints)}-{max(checkpoints)})"
            interval = median(interval for interval, _ in runs)
            print(f"Flink's checkpoints: {count}, asked for every {interval:.0f} ms; Spark's epochs: {shape[0]}")
        print(flush=True)
    found: dict[str, object] = {
        "on": place,
        "format": args.format,
        "epochs": shape[0],
        "rows": shape[1],
        "source_files": args.files,
        "seconds": {f.name: f.seconds for f in figures},
        "ratio": {f.name: f.ratio for f in figures},
        "files": bench.files,
        "own_ms_per_epoch": median(bench.ours_ms),
    }
    if runs:
        found["flink"] = [{"interval_ms": interval, **asdict(copied)} for interval, copied in runs]
    return found


if __name__ == "__main__":
    main()
