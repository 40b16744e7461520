"""Parts that stay open over epochs against Spark's own file sink and plain foreachBatch.

    python -m benchmarks.rolling [--rounds 5] [--json] [--only small|large] [--on local|hdfs] [--format parquet|json]
                                 [--flink] [--files 1] [--size 3x1000]

On a local disk all run with Hadoop's own file system ("as it comes") and with epochal's, each in its own session; on
HDFS there is only one. Each run starts from an empty target and checkpoint and ends when the last row is visible: parts
close at half of all rows. It also prints the number of files, and epochal's own time for each epoch, without Spark's
writing.

With ``--flink`` Flink's FileSink copies the same rows, in its own JVM with Spark's heap and as many cores. Its epochs
are checkpoints at a fixed interval. The interval is derived from the run before, so that there are about as many as
Spark's epochs, or as many as Flink can make (a checkpoint may take longer than the shortest interval); their number is
printed. Other differences to consider: Flink reads two source files at a time, while a micro-batch has one file and so
one task (``--files 2`` gives it two of half the size). Flink runs one job for all epochs, while Spark plans each. Both
of Flink's writers close a file at each checkpoint, so no part stays open. On a local disk Flink and epochal fsync their
data files and checkpoints; Spark's sinks do not. A query that reads the same rows and writes nothing ("Spark, no sink")
shows how much of the difference is Spark's own: no sink of Spark can be faster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter

from benchmarks import command
from benchmarks.disks import CORES, Disk, Sessions, Standings, race_on
from benchmarks.flink import Copied, Flink, NoFlink, flink
from benchmarks.flink.pace import Paced
from benchmarks.hdfs import hdfs
from benchmarks.measure import note, timed
from benchmarks.streams import SCHEMA, SourceStream
from epochal import EpochWriter, Rolling, RollingFileSink
from epochal.sinks.files.options import Format
from epochal.sinks.storage.hadoop import resolve
from epochal.txn.coordinator import Coordinator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PEER = "Spark's file sink"
FLINK = "Flink's FileSink"
NO_SINK = "Spark, no sink"
EPOCHAL = "epochal, rolling"
PACING = 5  # runs to find Flink's checkpoint interval; the extra warm-up favours Flink
SHAPES = {"small": (20, 50_000), "large": (20, 500_000)}
DISKS = {"local": tuple(Disk), "hdfs": (Disk.SAME,)}  # HDFS has one file system for all


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of input, one place, one format. It is pickled, because the runs are in other processes."""

    home: Path
    root: str
    epochs: int
    rows: int
    format: Format
    files: int  # source files in an epoch

    @property
    def target(self) -> str:
        return f"{self.root}/run/target"

    @property
    def checkpoint(self) -> str:
        return f"{self.root}/run/checkpoint"


@dataclass(frozen=True, slots=True)
class RunResult:
    """The time of one run, and the number of files it made."""

    seconds: float
    files: int
    ours_ms: float


class Bench:
    """Runs and measures all competitors on one shape."""

    def __init__(self, sessions: Sessions, shape: Shape, disks: tuple[Disk, ...], other: Flink | None) -> None:
        self._sessions, self._shape, self._disks = sessions, shape, disks
        source = sessions.call(disks[0], partial(prepare, shape))
        self.files: dict[str, int] = {}
        self.ours_ms: dict[Disk, list[float]] = {disk: [] for disk in disks}
        self.flink = Paced(other, f"file:{source}", shape.epochs) if other else None

    @property
    def flink_runs(self) -> list[tuple[int, Copied]]:
        """Flink's runs that count: the first one warmed up."""
        return self.flink.runs[1:] if self.flink else []

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
    """The source; the first call writes it."""
    return SourceStream(spark, shape.home, shape.epochs * shape.files, shape.rows // shape.files).source


def clear(shape: Shape, spark: SparkSession) -> None:
    """Remove the files of the run before."""
    files, place = resolve(f"{shape.root}/run", spark)
    files.delete(place)


def count_files(shape: Shape, name: str, spark: SparkSession) -> int:
    """The number of files in the target. Exits if rows are missing."""
    found = spark.read.schema(SCHEMA).format(shape.format).load(shape.target)
    if (count := found.count()) != shape.epochs * shape.rows:
        raise SystemExit(f"{name}: {count} rows instead of {shape.epochs * shape.rows}: there is no result")
    return len(found.inputFiles())


def run(shape: Shape, name: str, spark: SparkSession) -> RunResult:
    """One run of one of Spark's competitors."""
    source = prepare(shape, spark)
    clear(shape, spark)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", shape.files)
    writer = stream.parquet(f"file:{source}/*").writeStream
    writer = writer.option("checkpointLocation", shape.checkpoint).trigger(availableNow=True)
    with our_own_time() as spent:
        seconds = timed(lambda: RUNS[name](shape, writer))
    files = 0 if name == NO_SINK else count_files(shape, name, spark)
    return RunResult(seconds, files, 1000 * sum(spent) / shape.epochs)


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
    """Collects the seconds in the coordinator, without those in Spark's writer."""
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
    parser = command.parser("rolling", __doc__, only=SHAPES)
    parser.add_argument("--on", choices=("local", "hdfs"))
    parser.add_argument("--format", choices=("parquet", "json"), default="parquet")
    parser.add_argument("--files", type=int, default=1, help="source files in an epoch, a task each")
    parser.add_argument(
        "--flink", action="store_true", help="run Flink's FileSink too: needs a JDK, fetches 160 MB once"
    )
    args = parser.parse_args()
    if args.flink and args.format != "parquet":
        parser.error("--flink copies Parquet only")
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(command.results(args))
        roots = {"local": f"file:{results.home}"} if args.on != "hdfs" else {}
        settings: dict[str, str] = {}
        if args.on != "local":
            uri, settings = stack.enter_context(hdfs())
            roots["hdfs"] = f"{uri}/bench"
        sessions = stack.enter_context(Sessions(settings))
        other = _flink(stack, sessions, results.home, settings) if args.flink else None
        for place, root in roots.items():
            for name, (epochs, rows) in command.sizes(args, SHAPES).items():
                shape = Shape(results.home, root, epochs, rows, args.format, args.files)
                bench = Bench(sessions, shape, DISKS[place], other)
                title = command.titled(_title(place, shape, args.rounds))
                standings = bench.race(args.rounds)
                found = {"on": place, **_found(bench, shape, standings)}
                results.add(f"{name}, {place}", found, f"{title}\n{_text(bench, shape, standings)}")


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


def _title(place: str, shape: Shape, rounds: int) -> str:
    sources = f"{shape.files} source file{'s' if shape.files > 1 else ''} an epoch"
    size = f"{shape.epochs} epochs x {shape.rows:,} rows"
    return f"{size}, {sources}, {shape.format}, {place}, local[{CORES}], {rounds} rounds"


def _text(bench: Bench, shape: Shape, standings: Standings) -> str:
    lines = [standings.table(), "files: " + "; ".join(f"{name}: {count}" for name, count in bench.files.items())]
    for disk, spent in bench.ours_ms.items():
        lines.append(f"epochal's own, {disk}: {median(spent):.0f} ms an epoch (worst run {max(spent):.0f})")
    if runs := bench.flink_runs:
        checkpoints = [copied.checkpoints for _, copied in runs]
        count = f"{median(checkpoints):.0f} a run ({min(checkpoints)}-{max(checkpoints)})"
        interval = median(interval for interval, _ in runs)
        lines.append(f"Flink's checkpoints: {count}, asked for every {interval:.0f} ms; Spark's epochs: {shape.epochs}")
    return "\n".join(lines)


def _found(bench: Bench, shape: Shape, standings: Standings) -> dict[str, object]:
    found: dict[str, object] = {
        "format": shape.format,
        "epochs": shape.epochs,
        "rows": shape.rows,
        "source_files": shape.files,
        **standings.as_json(),
        "files": bench.files,
        "own_ms_per_epoch": {disk: median(spent) for disk, spent in bench.ours_ms.items()},
    }
    if runs := bench.flink_runs:
        found["flink"] = [{"interval_ms": interval, **asdict(copied)} for interval, copied in runs]
    return found


if __name__ == "__main__":
    main()
