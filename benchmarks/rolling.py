"""Parts that stay open over epochs against Spark's own file sink and plain foreachBatch.

    python -m benchmarks.rolling [--rounds 5] [--json] [--only small|large] [--on local|hdfs] [--format parquet|json]
                                 [--flink] [--files 1]

On a local disk all of them run with Hadoop's own file system ("as it comes") and with epochal's, in a session for
each; HDFS is the same for all. Each run starts from an empty target and checkpoint and ends when the last row is
visible: parts close at half of all rows. Printed besides: how many files each makes, and what an epoch costs that is
not Spark's own writing.

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
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter

from benchmarks.disks import CORES, Disk, Sessions, Standings, race_on
from benchmarks.flink import Flink, NoFlink, flink
from benchmarks.flink.pace import Paced
from benchmarks.measure import note, timed
from benchmarks.streams import SCHEMA, Stream
from epochal import EpochWriter, Rolling, RollingFileSink
from epochal.sinks.files.options import Format
from epochal.sinks.storage.hadoop import resolve
from epochal.testing import servers
from epochal.txn.coordinator import Coordinator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PEER = "Spark's file sink"
FLINK = "Flink's FileSink"
NO_SINK = "Spark, no sink"
EPOCHAL = "epochal, rolling"
PACING = 5  # runs by which Flink finds its pace; if it is warmer for it than the others, that is to its favour
SHAPES = {"small": (20, 50_000), "large": (20, 500_000)}
DISKS = {"local": tuple(Disk), "hdfs": (Disk.SAME,)}  # on HDFS all have the same one anyhow


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of input, one place, one format. Pickled: the runs are in other processes."""

    home: Path
    root: str
    epochs: int
    rows: int
    format: Format
    files: int  # of the source, in an epoch

    @property
    def target(self) -> str:
        return f"{self.root}/run/target"

    @property
    def checkpoint(self) -> str:
        return f"{self.root}/run/checkpoint"


@dataclass(frozen=True, slots=True)
class Took:
    """What one run took, and how many files it made."""

    seconds: float
    files: int
    ours_ms: float


class Bench:
    """One shape and everything that is measured on it."""

    def __init__(self, sessions: Sessions, shape: Shape, disks: tuple[Disk, ...], other: Flink | None) -> None:
        self._sessions, self._shape, self._disks = sessions, shape, disks
        source = sessions.call(disks[0], partial(prepare, shape))
        self.files: dict[str, int] = {}
        self.ours_ms: dict[Disk, list[float]] = {disk: [] for disk in disks}
        self.flink = Paced(other, f"file:{source}", shape.epochs) if other else None

    def race(self, rounds: int) -> Standings:
        others: dict[str, Callable[[], float]] = {}
        if self.flink:
            others[FLINK] = partial(self._run_flink, self.flink)
            for _ in range(PACING):
                self._run_flink(self.flink)
            self.flink.runs.clear()
        names = [name for name in RUNS if name != NO_SINK or self.flink]
        runs = {name: partial(self._run, name) for name in names}
        return race_on(self._disks, runs, peer=PEER, rounds=rounds, others=others)

    def _run(self, name: str, disk: Disk) -> float:
        took = self._sessions.call(disk, partial(run, self._shape, name))
        if name != NO_SINK:
            self.files[f"{name}, {disk}"] = took.files
        if name == EPOCHAL:
            self.ours_ms[disk].append(took.ours_ms)
        return took.seconds

    def _run_flink(self, flink: Paced) -> float:
        self._sessions.call(self._disks[0], partial(clear, self._shape))
        seconds = flink.copy(self._shape.target, self._shape.checkpoint)
        self.files[FLINK] = self._sessions.call(self._disks[0], partial(count_files, self._shape, FLINK))
        return seconds


def prepare(shape: Shape, spark: SparkSession) -> Path:
    """The source, made by whoever asks first."""
    return Stream(spark, shape.home, shape.epochs * shape.files, shape.rows // shape.files).source


def clear(shape: Shape, spark: SparkSession) -> None:
    """Remove what the run before has left."""
    files, place = resolve(f"{shape.root}/run", spark)
    files.delete(place)


def count_files(shape: Shape, name: str, spark: SparkSession) -> int:
    """The files of the target. A run whose rows are not all there ends it all."""
    found = spark.read.schema(SCHEMA).format(shape.format).load(shape.target)
    if (count := found.count()) != shape.epochs * shape.rows:
        raise SystemExit(f"{name}: {count} rows instead of {shape.epochs * shape.rows}: no figure for that")
    return len(found.inputFiles())


def run(shape: Shape, name: str, spark: SparkSession) -> Took:
    """One run of one of Spark's competitors."""
    source = prepare(shape, spark)
    clear(shape, spark)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", shape.files)
    writer = stream.parquet(f"file:{source}/*").writeStream
    writer = writer.option("checkpointLocation", shape.checkpoint).trigger(availableNow=True)
    with our_own_time() as spent:
        seconds = timed(lambda: RUNS[name](shape, writer))
    files = 0 if name == NO_SINK else count_files(shape, name, spark)
    return Took(seconds, files, 1000 * sum(spent) / shape.epochs)


def _file_sink(shape: Shape, writer: DataStreamWriter) -> None:
    writer.format(shape.format).start(shape.target).awaitTermination()


def _no_sink(_: Shape, writer: DataStreamWriter) -> None:
    writer.format("noop").start().awaitTermination()


def _plain(shape: Shape, writer: DataStreamWriter) -> None:
    def append(frame: DataFrame, _: int) -> None:
        frame.write.mode("append").format(shape.format).save(shape.target)

    writer.foreachBatch(append).start().awaitTermination()


def _epochal(shape: Shape, writer: DataStreamWriter) -> None:
    rolling = Rolling(max_rows=shape.epochs * shape.rows // 2)
    sink = RollingFileSink(shape.target, format=shape.format, rolling=rolling)
    EpochWriter(sink).start(writer).awaitTermination()


RUNS = {PEER: _file_sink, "plain foreachBatch": _plain, EPOCHAL: _epochal, NO_SINK: _no_sink}


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
        sessions = stack.enter_context(Sessions(settings))
        other = _flink(stack, sessions, home, settings) if args.flink else None
        for place, root in roots.items():
            for name, (epochs, rows) in SHAPES.items():
                if args.only in (None, name):
                    shape = Shape(home, root, epochs, rows, args.format, args.files)
                    bench = Bench(sessions, shape, DISKS[place], other)
                    results.append(_report(bench, place, shape, args))
    if args.json:
        print(json.dumps(results, indent=1))


def _driver_memory(spark: SparkSession) -> str:
    return spark.sparkContext.getConf().get("spark.driver.memory", "1g") or "1g"


def _flink(stack: contextlib.ExitStack, sessions: Sessions, home: Path, settings: Mapping[str, str]) -> Flink | None:
    memory = sessions.call(Disk.SAME, _driver_memory)
    hadoop = {key.removeprefix("spark.hadoop."): value for key, value in settings.items()}
    try:
        return stack.enter_context(flink(home, memory=memory, cores=CORES, hadoop=hadoop, tell=note))
    except NoFlink as fault:
        note(f"without Flink: {fault}")
        return None


def _report(bench: Bench, place: str, shape: Shape, args: argparse.Namespace) -> dict[str, object]:
    sources = f"{args.files} source file{'s' if args.files > 1 else ''} an epoch"
    title = f"{shape.epochs} epochs x {shape.rows:,} rows, {sources}, {args.format}, {place}, local[{CORES}]"
    title += f", {args.rounds} rounds"
    note(title)
    standings = bench.race(args.rounds)
    runs = bench.flink.runs[1:] if bench.flink else []  # the first one warmed up
    if not args.json:
        print(f"\n{title}\n{standings.table()}")
        print("files: " + "; ".join(f"{name}: {count}" for name, count in bench.files.items()))
        for disk, spent in bench.ours_ms.items():
            print(f"epochal's own, {disk}: {median(spent):.0f} ms an epoch (worst run {max(spent):.0f})")
        if runs:
            checkpoints = [copied.checkpoints for _, copied in runs]
            count = f"{median(checkpoints):.0f} a run ({min(checkpoints)}-{max(checkpoints)})"
            interval = median(interval for interval, _ in runs)
            print(f"Flink's checkpoints: {count}, asked for every {interval:.0f} ms; Spark's epochs: {shape.epochs}")
        print(flush=True)
    found: dict[str, object] = {
        "on": place,
        "format": args.format,
        "epochs": shape.epochs,
        "rows": shape.rows,
        "source_files": args.files,
        **standings.as_json(),
        "files": bench.files,
        "own_ms_per_epoch": {disk: median(spent) for disk, spent in bench.ours_ms.items()},
    }
    if runs:
        found["flink"] = [{"interval_ms": interval, **asdict(copied)} for interval, copied in runs]
    return found


if __name__ == "__main__":
    main()
