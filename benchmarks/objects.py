"""Rolling files on S3 against Spark's own writing there, and against rolling files on a local disk.

    python -m benchmarks.objects [--rounds 3] [--size 10x50000] [--only times|requests] [--json]

The store is that of `servers.s3`, which answers one request at a time. Files are published through memory there,
because it does not keep the condition of copies. Requests are counted by a proxy that keeps it. Each run starts from an
empty target and checkpoint, the checkpoint on a local disk, and ends when the last row is visible.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import epochal
from benchmarks import command
from benchmarks.measure import Figure, race, table
from benchmarks.streams import SourceStream
from epochal import EpochWriter, RollingFileSink
from epochal.sinks.spark.sessions import set_for
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.jars import JarSet, fetched
from epochal.spark_plugins.s3 import s3_settings
from epochal.testing import servers
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CORES = 2
SHORT = 2  # epochs
SHAPES = {"times": (10, 50_000), "requests": (10, 50_000)}
PEER = "foreachBatch, S3A's default committer"
MAGIC = "foreachBatch, S3A's magic committer"
EPOCHAL, LOCAL = "epochal", "epochal, local disk"
# Of Spark 4.1: its 4.2.0 could not be fetched where this was run.
CLOUD = JarSet(
    title="Spark's cloud committers",
    size="30 KB",
    packages=("org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",),
    excluded=(
        "org.apache.hadoop:*,org.apache.httpcomponents:*,org.apache.spark:spark-core_2.13,org.scala-lang*:*,org.slf4j:*,"
        "com.*:*,io.*:*,joda-time:*,commons*:*,software*:*,jakarta*:*,javax*:*,org.wildfly*:*,org.apache.logging*:*"
    ),
)
# With the jar of the cloud committers on the class path Spark takes the magic one unless it is told otherwise.
DEFAULT = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "fs.s3a.committer.name": "file",
}
MAGICAL = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    "fs.s3a.committer.name": "magic",
}


def main() -> None:
    """Race, count and report."""
    args = command.parser("objects", __doc__, rounds=3, only=SHAPES).parse_args()
    with (
        command.results(args) as results,
        servers.s3() as store,
        StoreProxy(store.endpoint, conditional_copies=True) as proxy,
    ):
        os.environ.update(store.environment)
        settings = s3_settings({"spark.jars": ",".join(map(str, fetched(CLOUD)))})
        spark = epochal.session("benchmark", master=f"local[{CORES}]", conf=settings)
        try:
            for name, (epochs, rows) in command.sizes(args, SHAPES).items():
                bench = Bench(spark, store, results.home, epochs, rows)
                title = command.titled(f"{name}: {epochs} epochs x {rows:,} rows, Parquet, on S3, local[{CORES}]")
                if name == "times":
                    figures = bench.times(args.rounds)
                    results.add(name, {one.name: one.seconds for one in figures}, f"{title}\n{table(figures, PEER)}")
                else:
                    counts = bench.requests(proxy)
                    results.add(name, counts, f"{title}\n{_text(counts)}")
        finally:
            spark.stop()


class Bench:
    """Runs all competitors on one shape."""

    def __init__(self, spark: SparkSession, store: S3Store, home: Path, epochs: int, rows: int) -> None:
        self._spark, self._store, self._epochs = spark, store, epochs
        self._stream, self._short = (SourceStream(spark, home, many, rows) for many in (epochs, SHORT))
        self._runs: dict[str, Callable[[str, DataStreamWriter], None]] = {
            PEER: partial(_append, spark, DEFAULT),
            MAGIC: partial(_append, spark, MAGICAL),
            EPOCHAL: _epochal,
            LOCAL: _epochal,
        }

    def times(self, rounds: int) -> list[Figure]:
        return race({name: partial(self._run, name) for name in self._runs}, peer=PEER, rounds=rounds)

    def requests(self, proxy: StoreProxy) -> dict[str, dict[str, float]]:
        """By kind, for one epoch: those of a long stream without those of a short one, which have start and end."""
        found = {}
        self._reach(proxy.endpoint)
        for name in (PEER, MAGIC, EPOCHAL):
            # The first run probes the store, once a process.
            _, short, long = (self._asked(name, proxy, stream) for stream in (self._short, self._short, self._stream))
            kinds = sorted({*short, *long})
            found[name] = {kind: round((long[kind] - short[kind]) / (self._epochs - SHORT), 1) for kind in kinds}
        self._reach(self._store.endpoint)
        return found

    def _asked(self, name: str, proxy: StoreProxy, stream: SourceStream) -> Counter[str]:
        before = Counter(proxy.requests)
        place = f"{self._store.url}/{uuid.uuid4().hex}"
        self._runs[name](place, stream.writer(stream.place))
        return proxy.requests - before

    def _reach(self, endpoint: str) -> None:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        conf: Any = self._spark._jsc.hadoopConfiguration()
        conf.set("fs.s3a.endpoint", endpoint)
        jvm: Any = self._spark._jvm
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # else the next run has the connection of the one before

    def _run(self, name: str) -> float:
        place = str(self._stream.place / "target") if name == LOCAL else f"{self._store.url}/{uuid.uuid4().hex}"

        def count() -> int:
            return self._spark.read.parquet(spark_path(place)).count()

        return self._stream.run(lambda _, writer: self._runs[name](place, writer), count=count)


def _append(spark: SparkSession, committer: Mapping[str, str], target: str, writer: DataStreamWriter) -> None:
    def append(frame: DataFrame, _: int) -> None:
        frame.write.mode("append").parquet(spark_path(target))

    with set_for(spark, committer):
        writer.foreachBatch(append).start().awaitTermination()


def _epochal(target: str, writer: DataStreamWriter) -> None:
    EpochWriter(RollingFileSink(target)).start(writer).awaitTermination()


def _text(counts: dict[str, dict[str, float]]) -> str:
    return "\n".join(f"{name:<40} {sum(one.values()):7.1f} requests an epoch: {one}" for name, one in counts.items())


if __name__ == "__main__":
    main()
