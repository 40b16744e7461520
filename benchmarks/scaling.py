"""How seconds an epoch, and epochal's own share of them, grow with rows, sinks, files, epochs and executors.

    python -m benchmarks.scaling [--parts rows sinks kinds files epochs executors] [--rounds 3] [--json]
        [--rows 10000 10000000] [--sinks 1 6] [--files 1 1000] [--epochs 10 10000] [--executors 1 4] [--plots FOLDER]

Competitors run in one session, in turning order; a ratio compares two runs of one round. The session has epochal's file
system for local disks, so all have it. Each run starts from an empty target and ends when the last row is visible.

* rows: epochs of so many rows into one target: epochal, Spark's file sink, plain foreachBatch.
* sinks: so many folders in one writer, against as many writes in a plain foreachBatch.
* kinds: files, Delta and Cassandra in one writer, against three writes in a plain foreachBatch: Parquet, Delta, and
  spark-cassandra-connector. It starts a Cassandra.
* files: epochs of so many files, each in a bucket of its own.
* epochs: what an epoch takes after so many, by the coordinator and the file sink alone, without Spark; and the first
  and the last tenth of `--with-spark` epochs of each competitor.
* executors: a standalone cluster of so many executors with a core each.

epochal's own share is all that a batch and its settlement take but for Spark's jobs. Processor time is that of the
driver, its JVM and Python workers: unlike seconds, it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import scaling_epochs, scaling_plots
from benchmarks.buckets import Clock
from benchmarks.cassandra import PACKAGE
from benchmarks.measure import CpuMeter, Figure, note, race
from benchmarks.streams import SourceStream
from epochal import CassandraSink, DeltaSink, EpochWriter, RollingFileSink, session
from epochal.sinks.cassandra.commit import job as cassandra_jobs
from epochal.testing import servers
from epochal.txn.events import EpochCommitted, EpochDone, EpochPrepared, EpochStaged, Event
from integration_tests.spark.cluster import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from epochal.txn.participant import Participant

PARTS = ("rows", "sinks", "kinds", "files", "epochs", "executors")
OURS, PLAIN, SPARKS = "epochal", "plain foreachBatch", "Spark's file sink"
CORES = 2
TASKS = 4
LARGE = 2_000_000  # rows of an epoch; beyond, one epoch is long enough to be measured
KEYSPACE = "bench"
Work = Callable[[Path, "DataStreamWriter"], None]


@dataclass
class Share(Clock):
    """What an epoch takes apart from Spark's jobs, as an observer of a writer sees it."""

    epochs: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)  # of each sink: what staging took, and the commit

    def __post_init__(self) -> None:
        super().__post_init__()
        cassandra_jobs.run_in_spark = self._timed(cassandra_jobs.run_in_spark)

    def on_event(self, event: Event) -> None:
        """A batch is prepared, then it is settled: both are counted, without the jobs in them."""
        if isinstance(event, EpochStaged | EpochCommitted):
            self.steps.setdefault(f"{event.sink} {event.kind}", []).append(event.seconds)
        if isinstance(event, EpochPrepared | EpochDone):
            own = event.seconds - self.jobs
            self.jobs = 0.0
            if isinstance(event, EpochPrepared):
                self.epochs.append(own)
            else:
                self.epochs[-1] += own

    def taken(self) -> list[float]:
        """The epochs since the last call, without the first of a start."""
        found, self.epochs = self.epochs[1:] or self.epochs, []
        return found


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one part."""

    size: int
    epochs: int
    figures: Sequence[Figure]
    own_s: float  # the median of epochal's own share of an epoch
    cpu_s: Mapping[str, Sequence[float]]  # of the driver, the JVM and Python workers, by competitor and round

    def as_json(self) -> dict[str, object]:
        return {
            "seconds_an_epoch": {f.name: [s / self.epochs for s in f.seconds] for f in self.figures},
            "ratios": {f.name: f.ratios for f in self.figures},
            "own_s": self.own_s,
            "cpu_s_an_epoch": {name: [s / self.epochs for s in seconds] for name, seconds in self.cpu_s.items()},
        }


class Bench:
    """Races in one session."""

    def __init__(self, spark: SparkSession, home: Path, rounds: int, servers: Sequence[int] = ()) -> None:
        """The processor time of `servers` and of what they have started is not counted."""
        self.spark, self.home, self._rounds, self._servers = spark, home, rounds, servers
        self.share = Share()

    def point(
        self,
        size: int,
        stream: SourceStream,
        epochs: int,
        works: Mapping[str, Work],
        check: Callable[[Path], int],
        query: Callable[[DataFrame], DataFrame] | None = None,
    ) -> Point:
        """All competitors at one size."""
        note(f"  {size:,}")
        own: list[float] = []
        cpu: dict[str, list[float]] = {name: [] for name in works}

        def run(name: str) -> float:
            meter = CpuMeter(without=self._servers)

            def count() -> int:
                cpu[name].append(meter.seconds())  # before the rows are counted
                return check(stream.place / "target")

            seconds = stream.run(works[name], count=count, query=query)
            if name == OURS:
                own.extend(self.share.taken())
            return seconds

        figures = race({name: partial(run, name) for name in works}, peer=PLAIN, rounds=self._rounds)
        skipped = len(own) // (self._rounds + 1)  # those of the first round, which warms up
        shutil.rmtree(stream.source, ignore_errors=True)
        return Point(size, epochs, figures, median(own[skipped:]), {name: spent[1:] for name, spent in cpu.items()})

    def rows(self, size: int) -> Point:
        epochs = 3 if size <= LARGE else 1
        stream = SourceStream(self.spark, self.home, epochs, size)
        return self.point(size, stream, epochs, self.one_target(), self.count)

    def sinks(self, size: int) -> Point:
        stream = SourceStream(self.spark, self.home, 10, 50_000)
        works: dict[str, Work] = {PLAIN: partial(self._plain, size), OURS: partial(self._exact, size)}
        return self.point(size, stream, 10, works, lambda place: self.count(place / "0"))

    def files(self, size: int) -> Point:
        rows = max(50_000, 10 * size)
        stream = SourceStream(self.spark, self.home, 3, rows)
        works = self.one_target(bucket=f"id % {size}")
        return self.point(size, stream, 3, works, self.count)

    def count(self, place: Path) -> int:
        return self.spark.read.parquet(str(place)).count()

    def one_target(self, bucket: str | None = None) -> dict[str, Work]:
        """The competitors for one folder; with a bucket, each bucket of an epoch is one file."""
        by = ["bucket"] if bucket else []

        def with_bucket(frame: DataFrame) -> DataFrame:
            return frame.selectExpr("*", f"int({bucket}) AS bucket").coalesce(1) if bucket else frame

        def ours(target: Path, writer: DataStreamWriter) -> None:
            exact = EpochWriter(
                RollingFileSink(str(target), bucket_by=by, drop_bucket_columns=bool(by)),
                observers=[self.share.on_event],
            )

            def batch(frame: DataFrame, epoch: int) -> None:
                exact(with_bucket(frame), epoch)

            writer.foreachBatch(batch).start().awaitTermination()
            exact.settle()

        def plain(target: Path, writer: DataStreamWriter) -> None:
            def batch(frame: DataFrame, _: int) -> None:
                with_bucket(frame).write.mode("append").partitionBy(*by).parquet(str(target))

            writer.foreachBatch(batch).start().awaitTermination()

        works: dict[str, Work] = {PLAIN: plain, OURS: ours}
        return works if bucket else works | {SPARKS: _file_sink}

    def _exact(self, size: int, target: Path, writer: DataStreamWriter) -> None:
        sinks = [RollingFileSink(str(target / str(n)), name=f"files-{n}") for n in range(size)]
        EpochWriter(*sinks, observers=[self.share.on_event]).start(writer).awaitTermination()

    def _plain(self, size: int, target: Path, writer: DataStreamWriter) -> None:
        def batch(frame: DataFrame, _: int) -> None:
            for number in range(size):
                frame.write.mode("append").parquet(str(target / str(number)))

        writer.foreachBatch(batch).start().awaitTermination()


def _file_sink(target: Path, writer: DataStreamWriter) -> None:
    writer.format("parquet").start(str(target)).awaitTermination()


def kinds(home: Path, args: argparse.Namespace) -> dict[str, object]:
    """Three kinds of sinks in one writer, against three writes."""
    from cassandra.cluster import Cluster

    with servers.cassandra(own=True, java_options=["-XX:TieredStopAtLevel=4"], tell=note) as server:
        admin = Cluster(server.hosts, port=server.port, protocol_version=5).connect()
        admin.default_timeout = 60
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        admin.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
        admin.execute(f"CREATE TABLE {KEYSPACE}.orders (s text, id bigint, p int, d double, PRIMARY KEY (s, id))")
        spark = _session_for_kinds(server)
        bench = Bench(spark, home, args.rounds, [node.pid for node in server.nodes])

        def empty() -> None:
            for row in admin.execute(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{KEYSPACE}'"):
                admin.execute(f"TRUNCATE {KEYSPACE}.{row.table_name}")

        def count(place: Path) -> int:
            found = {
                "files": bench.count(place / "files"),
                "delta": spark.read.format("delta").load(str(place / "delta")).count(),
                "cassandra": sum(1 for _ in admin.execute(f"SELECT id FROM {KEYSPACE}.orders")),
            }
            if len(set(found.values())) > 1:
                raise SystemExit(f"{found}: the stores do not have the same rows: no result")
            empty()
            return found["files"]

        def ours(target: Path, writer: DataStreamWriter) -> None:
            sinks: list[Participant[Any]] = [
                RollingFileSink(str(target / "files")),
                DeltaSink(str(target / "delta")),
                CassandraSink(f"{KEYSPACE}.orders", contact_points=server.hosts, port=server.port),
            ]
            EpochWriter(*sinks, observers=[bench.share.on_event]).start(writer).awaitTermination()

        def plain(target: Path, writer: DataStreamWriter) -> None:
            def batch(frame: DataFrame, _: int) -> None:
                frame.write.mode("append").parquet(str(target / "files"))
                frame.write.mode("append").format("delta").save(str(target / "delta"))
                into = frame.write.format("org.apache.spark.sql.cassandra").mode("append")
                into.options(table="orders", keyspace=KEYSPACE).save()

            writer.foreachBatch(batch).start().awaitTermination()

        epochs, rows = args.kinds_size
        stream = SourceStream(spark, home, epochs, rows)
        found = bench.point(3, stream, epochs, {PLAIN: plain, OURS: ours}, count)
        admin.cluster.shutdown()
        spark.stop()
    steps = {name: median(seconds) for name, seconds in sorted(bench.share.steps.items())}
    return found.as_json() | {"steps_s": steps}


def _session_for_kinds(server: servers.CassandraCluster) -> SparkSession:
    """With Delta's jars and the connector."""
    from epochal.spark_plugins import jars

    delta = jars.delta_settings()
    conf = {
        **delta,
        "spark.jars.packages": ",".join(filter(None, [delta.get("spark.jars.packages"), PACKAGE])),
        "spark.cassandra.connection.host": ",".join(server.hosts),
        "spark.cassandra.connection.port": str(server.port),
    }
    return session("scaling", master=f"local[{CORES}]", conf=conf)


def executors(home: Path, size: int, rounds: int) -> Point:
    """Both competitors on a cluster of their own processes."""
    with cluster(home / f"cluster-{size}", workers=size) as running:
        spark = session("scaling", master=running.url, conf={"spark.executor.memory": "512m"})
        bench = Bench(spark, home, rounds)
        stream = SourceStream(spark, home, 5, 400_000)
        # A source file is one row group, and so one task: its rows are spread as those of many files would be.
        found = bench.point(size, stream, 5, bench.one_target(), bench.count, lambda rows: rows.repartition(TASKS))
        spark.stop()
    return found


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--sinks", nargs="+", type=int, default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--kinds-size", nargs=2, type=int, default=[8, 20_000], metavar=("EPOCHS", "ROWS"))
    parser.add_argument("--files", nargs="+", type=int, default=[1, 10, 100, 1000])
    parser.add_argument("--epochs", nargs="+", type=int, default=[10, 100, 1000, 10_000])
    parser.add_argument("--with-spark", type=int, default=300, help="epochs with Spark")
    parser.add_argument("--executors", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--plots", type=Path, help="draw into this folder")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="epochal-scaling-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for part in args.parts:
            note(f"{part}")
            found[part] = _part(part, home / part, args)
            if not args.json:
                print(f"\n{scaling_plots.table(part, found[part])}", flush=True)
            if args.plots:
                scaling_plots.draw(part, found[part], args.plots)
    if args.json:
        print(json.dumps(found))


def _part(part: str, home: Path, args: argparse.Namespace) -> dict[str, Any]:
    home.mkdir()
    if part == "kinds":
        return {"3": kinds(home, args)}
    if part == "executors":
        return {str(size): executors(home, size, args.rounds).as_json() for size in args.executors}
    if part == "epochs":
        without = scaling_epochs.without_spark(home, args.epochs)
        with session("scaling", master=f"local[{CORES}]") as spark:
            bench = Bench(spark, home, args.rounds)
            return without | scaling_epochs.with_spark(spark, home, args.with_spark, bench.one_target())
    with session("scaling", master=f"local[{CORES}]") as spark:
        bench = Bench(spark, home, args.rounds)
        return {str(size): getattr(bench, part)(size).as_json() for size in getattr(args, part)}


if __name__ == "__main__":
    main()
