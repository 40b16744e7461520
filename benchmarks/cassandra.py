"""Cassandra: epochal against the Spark Cassandra connector and against foreachBatch with execute_concurrent.

    python -m benchmarks.cassandra [--rounds 5] [--json] [--only shared|unique] [--without-connector]

One server for all, started by the benchmark. Each run is one stream of 200,000 rows an epoch into an empty
table and ends when the last row is acknowledged; afterwards the rows are counted. ``shared`` has 50 rows in
a partition, ``unique`` one. The connector (3.5.1, made for Spark 3.5) is fetched by Spark's own resolver.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Figure, note, race, table
from benchmarks.streams import Stream
from epochal import CassandraSink, EpochWriter, session
from epochal.testing import servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CONNECTOR = "spark-cassandra-connector"
PACKAGE = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"
CONCURRENT = "execute_concurrent"
EPOCHS, ROWS = 3, 200_000
SHAPES = {"shared": 50, "unique": 1}
TEXT = "concat(s, repeat('x', 40)) AS s"


class Bench:
    """One shape of rows, one table."""

    def __init__(self, stream: Stream, server: servers.CassandraCluster, looker: Any, shape: str) -> None:
        self._stream, self._server, self._looker = stream, server, looker
        self._shape, self._table = shape, f"bench.{shape}"
        looker.execute(f"CREATE TABLE {self._table} (p bigint, c bigint, s text, d double, PRIMARY KEY (p, c))")

    def race(self, rounds: int, *, connector: bool) -> list[Figure]:
        runs: dict[str, Callable[[], float]] = {}
        if connector:
            runs[CONNECTOR] = lambda: self._run(self._connector)
        runs[CONCURRENT] = lambda: self._run(self._concurrent)
        runs["epochal"] = lambda: self._run(self._epochal)
        return race(runs, peer=CONNECTOR if connector else CONCURRENT, rounds=rounds)

    def _run(self, way: Callable[[Path, DataStreamWriter], None]) -> float:
        self._looker.execute(f"TRUNCATE {self._table}")
        return self._stream.run(way, count=self._count)

    def _count(self) -> int:
        return sum(1 for _ in self._looker.execute(f"SELECT c FROM {self._table}"))

    def _keyed(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr(f"id DIV {SHAPES[self._shape]} AS p", "id AS c", TEXT, "d")

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

    parser = argparse.ArgumentParser(prog="python -m benchmarks.cassandra", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(SHAPES))
    parser.add_argument("--without-connector", action="store_true")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    connector = not args.without_connector
    results: dict[str, object] = {}
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    with (
        tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder,
        servers.cassandra(own=True, java_options=["-XX:TieredStopAtLevel=4"], tell=note) as server,
    ):
        looker = Cluster(server.hosts, port=server.port, protocol_version=5).connect()
        looker.default_timeout = 60
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        looker.execute(f"CREATE KEYSPACE bench WITH replication = {replication}")
        spark = _session(server, connector=connector)
        for shape, shared in SHAPES.items():
            if args.only in (None, shape):
                title = f"{EPOCHS} epochs x {ROWS:,} rows, {shared} rows in a partition, one node, local[2]"
                note(title)
                bench = Bench(Stream(spark, Path(folder), EPOCHS, ROWS), server, looker, shape)
                figures = bench.race(args.rounds, connector=connector)
                rate = {f.name: round(EPOCHS * ROWS / f.median) for f in figures}
                results[shape] = {"rows_per_second": rate, "ratio": {f.name: f.ratio for f in figures}}
                if not args.json:
                    peer = CONNECTOR if connector else CONCURRENT
                    print(f"\n{title}, {args.rounds} rounds\n{table(figures, peer)}\nrows/s: {rate}\n", flush=True)
        looker.cluster.shutdown()
    if args.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
