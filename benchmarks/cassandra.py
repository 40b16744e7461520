"""Cassandra: epochal against the Spark Cassandra connector and against foreachBatch with execute_concurrent.

    python -m benchmarks.cassandra [--rounds 5] [--size 1x200000] [--json] [--only PARTITIONS] [--ways epochal ...]

All use one server, which the benchmark starts. Each run streams an epoch of 200,000 rows into an empty table and ends
when the last row is acknowledged; then the rows are counted. A client's CPU time is that of the driver, the JVM and the
Python workers. ``scattered`` has 50 rows in a partition, interleaved with those of others, as in a stream; ``sorted``
has 50 consecutive rows; ``unique`` has one. Spark's own resolver fetches the connector (3.5.1, for Spark 3.5).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.measure import CpuMeter, Figure, note, race, rate_lines, rates, table
from benchmarks.streams import SourceStream
from epochal import CassandraSink, EpochWriter, session
from epochal.testing import servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CONNECTOR = "spark-cassandra-connector"
PACKAGE = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"
CONCURRENT = "execute_concurrent"
EPOCHAL = "epochal"
WAYS = (CONNECTOR, CONCURRENT, EPOCHAL)
SIZE = 1, 200_000  # epochs, and rows in each
PARTITIONS = {
    "scattered": "id DIV {rows} * {fifty} + id % {fifty}",
    "sorted": "id DIV 50",
    "unique": "id",
}
TEXT = "concat(s, repeat('x', 40)) AS s"


class Bench:
    """One shape of rows in one table."""

    def __init__(
        self, stream: SourceStream, server: servers.CassandraCluster, admin: Any, shape: str, rows: int
    ) -> None:
        self._stream, self._server, self._admin = stream, server, admin
        self.cpu: dict[str, list[float]] = {way: [] for way in WAYS}
        self._meter, self._used = CpuMeter(), 0.0
        self._partition = PARTITIONS[shape].format(rows=rows, fifty=max(1, rows // 50))
        self._table = f"bench.{shape}"
        admin.execute(f"CREATE TABLE {self._table} (p bigint, c bigint, s text, d double, PRIMARY KEY (p, c))")

    def race(self, ways: Sequence[str], rounds: int) -> list[Figure]:
        how = {CONNECTOR: self._connector, CONCURRENT: self._concurrent, EPOCHAL: self._epochal}
        return race({way: partial(self._run, way, how[way]) for way in ways}, peer=ways[0], rounds=rounds)

    def _run(self, way: str, how: Callable[[Path, DataStreamWriter], None]) -> float:
        tables = self._admin.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'bench'")
        for row in tables:  # including epochal's own tables of the run before
            self._admin.execute(f"TRUNCATE bench.{row.table_name}")
        self._meter = CpuMeter(without=[node.pid for node in self._server.nodes])
        seconds = self._stream.run(how, count=self._count)
        self.cpu[way].append(self._used)
        return seconds

    def _count(self) -> int:
        self._used = self._meter.seconds()
        return sum(1 for _ in self._admin.execute(f"SELECT c FROM {self._table}"))

    def _keyed(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr(f"{self._partition} AS p", "id AS c", TEXT, "d")

    def _epochal(self, _: Path, writer: DataStreamWriter) -> None:
        sink = CassandraSink(self._table, contact_points=self._server.hosts, port=self._server.port)
        exact = EpochWriter(sink)

        def batch(frame: DataFrame, epoch: int) -> None:
            exact(self._keyed(frame), epoch)

        writer.foreachBatch(batch).start().awaitTermination()
        exact.settle()

    def _connector(self, _: Path, writer: DataStreamWriter) -> None:
        keyspace, name = self._table.split(".")

        def batch(frame: DataFrame, _: int) -> None:
            plain = self._keyed(frame).write.format("org.apache.spark.sql.cassandra").mode("append")
            plain.options(table=name, keyspace=keyspace).save()

        writer.foreachBatch(batch).start().awaitTermination()

    def _concurrent(self, _: Path, writer: DataStreamWriter) -> None:
        hosts, port, into = self._server.hosts, self._server.port, self._table

        def send(rows: Iterator[Any]) -> None:
            from cassandra.cluster import Cluster
            from cassandra.concurrent import execute_concurrent_with_args

            cluster = Cluster(hosts, port=port, protocol_version=5)
            try:
                connected = cluster.connect()
                statement = connected.prepare(f"INSERT INTO {into} (p, c, s, d) VALUES (?, ?, ?, ?)")
                execute_concurrent_with_args(connected, statement, (tuple(row) for row in rows), concurrency=100)
            finally:
                cluster.shutdown()

        def batch(frame: DataFrame, _: int) -> None:
            self._keyed(frame).foreachPartition(send)

        writer.foreachBatch(batch).start().awaitTermination()


def _session(server: servers.CassandraCluster, *, connector: bool) -> SparkSession:
    conf = {"spark.jars": ""}
    if connector:
        conf |= {
            "spark.jars.packages": PACKAGE,
            "spark.cassandra.connection.host": ",".join(server.hosts),
            "spark.cassandra.connection.port": str(server.port),
        }
    return session("benchmark", master="local[2]", conf=conf)


def main() -> None:
    """Race and report."""
    from cassandra.cluster import Cluster

    parser = command.parser("cassandra", __doc__, only=PARTITIONS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="what to run; the first is the peer")
    args = parser.parse_args()
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    with (
        command.results(args) as results,
        servers.cassandra(own=True, java_options=["-XX:TieredStopAtLevel=4"], tell=note) as server,
    ):
        admin = Cluster(server.hosts, port=server.port, protocol_version=5).connect()
        admin.default_timeout = 60
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        admin.execute(f"CREATE KEYSPACE bench WITH replication = {replication}")
        spark = _session(server, connector=CONNECTOR in args.ways)
        for shape, (epochs, rows) in command.sizes(args, dict.fromkeys(PARTITIONS, SIZE)).items():
            title = f"{epochs} x {rows:,} rows, partitions {shape}, one node, local[2], {args.rounds} rounds"
            command.titled(title)
            bench = Bench(SourceStream(spark, results.home, epochs, rows), server, admin, shape, rows)
            figures = bench.race(args.ways, args.rounds)
            found = rates(figures, bench.cpu, epochs * rows)
            results.add(shape, found, "\n".join([title, table(figures, args.ways[0]), *rate_lines(found)]))
        admin.cluster.shutdown()


if __name__ == "__main__":
    main()
