"""PostgreSQL: epochal against Spark's JDBC writer and against foreachBatch with COPY.

    python -m benchmarks.postgres [--rounds 5] [--size 5x200000] [--json] [--only TABLES] [--ways epochal ...]

All use one server, which the benchmark starts. Each run streams its epochs into an empty table and ends when the last
row is acknowledged; then the rows are counted. A client's CPU time is that of the driver, the JVM and the Python
workers. ``plain`` has no index; ``keyed`` has a primary key, for which epochal tries each epoch once before it is
decided. Neither JDBC nor COPY by foreachBatch is exactly once: an epoch that is repeated is doubled, or fails. The
second JDBC has ``reWriteBatchedInserts``, which is off unless asked for. Spark's own resolver fetches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import command
from benchmarks.measure import CpuMeter, Figure, note, race, rate_lines, rates, table
from benchmarks.streams import SourceStream
from epochal import EpochWriter, PostgresSink, session
from epochal.testing import servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

JDBC = "JDBC"
REWRITTEN = "JDBC, reWriteBatchedInserts"
PACKAGE = "org.postgresql:postgresql:42.7.7"
COPY = "foreachBatch, COPY"
EPOCHAL = "epochal"
WAYS = (JDBC, REWRITTEN, COPY, EPOCHAL)
SIZE = 5, 200_000  # epochs, and rows in each
TABLES = {"plain": "", "keyed": "PRIMARY KEY"}
TEXT = "concat(s, repeat('x', 40)) AS s"


class Bench:
    """One table."""

    def __init__(self, stream: SourceStream, server: servers.PostgresServer, shape: str) -> None:
        self._stream, self._server = stream, server
        self.cpu: dict[str, list[float]] = {way: [] for way in WAYS}
        self._meter, self._used = CpuMeter(), 0.0
        self._table = f"bench.{shape}"
        self._admin = psycopg.connect(server.dsn, autocommit=True)
        self._admin.execute("CREATE SCHEMA IF NOT EXISTS bench")
        columns = f"id bigint {TABLES[shape]}, s text, d double precision"
        self._admin.execute(f"CREATE TABLE {self._table} ({columns})".encode())

    def race(self, ways: Sequence[str], rounds: int) -> list[Figure]:
        how: dict[str, Callable[[Path, DataStreamWriter], None]]
        how = {JDBC: self._jdbc, REWRITTEN: self._rewritten, COPY: self._copy, EPOCHAL: self._epochal}
        return race({way: partial(self._run, way, how[way]) for way in ways}, peer=ways[0], rounds=rounds)

    def _run(self, way: str, how: Callable[[Path, DataStreamWriter], None]) -> float:
        self._admin.execute(f"TRUNCATE {self._table}".encode())
        self._admin.execute("DROP SCHEMA IF EXISTS epochal CASCADE")
        self._admin.execute("CHECKPOINT")
        self._meter = CpuMeter(without=[node.pid for node in self._server.nodes])
        seconds = self._stream.run(how, count=self._count)
        self.cpu[way].append(self._used)
        return seconds

    def _count(self) -> int:
        self._used = self._meter.seconds()
        row = self._admin.execute(f"SELECT count(*) FROM {self._table}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def _rows(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr("id", TEXT, "d")

    def _epochal(self, _: Path, writer: DataStreamWriter) -> None:
        exact = EpochWriter(PostgresSink(self._table, **self._server.options))  # type: ignore[arg-type]

        def batch(frame: DataFrame, epoch: int) -> None:
            exact(self._rows(frame), epoch)

        writer.foreachBatch(batch).start().awaitTermination()
        exact.settle()

    def _jdbc(self, _: Path, writer: DataStreamWriter, more: str = "") -> None:
        place = f"jdbc:postgresql://{self._server.hosts[0]}:{self._server.port}/{self._server.database}"
        url = f"{place}?user={self._server.user}{more}"
        options = {"url": url, "dbtable": self._table, "driver": "org.postgresql.Driver"}

        def batch(frame: DataFrame, _: int) -> None:
            self._rows(frame).write.format("jdbc").mode("append").options(**options).save()

        writer.foreachBatch(batch).start().awaitTermination()

    def _rewritten(self, home: Path, writer: DataStreamWriter) -> None:
        self._jdbc(home, writer, "&reWriteBatchedInserts=true")

    def _copy(self, _: Path, writer: DataStreamWriter) -> None:
        dsn, into = self._server.dsn, self._table

        def send(rows: Iterator[Any]) -> None:
            with psycopg.connect(dsn) as db, db.cursor().copy(f"COPY {into} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)

        def batch(frame: DataFrame, _: int) -> None:
            self._rows(frame).foreachPartition(send)

        writer.foreachBatch(batch).start().awaitTermination()


def main() -> None:
    """Race and report."""
    parser = command.parser("postgres", __doc__, only=TABLES)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="what to run; the first is the peer")
    args = parser.parse_args()
    settings = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
    with command.results(args) as results, servers.postgres(own=True, settings=settings, tell=note) as server:
        spark = session("benchmark", master="local[2]", conf={"spark.jars": "", "spark.jars.packages": PACKAGE})
        for shape, (epochs, rows) in command.sizes(args, dict.fromkeys(TABLES, SIZE)).items():
            title = f"{epochs} x {rows:,} rows, table {shape}, one server, local[2], {args.rounds} rounds"
            command.titled(title)
            bench = Bench(SourceStream(spark, results.home, epochs, rows), server, shape)
            figures = bench.race(args.ways, args.rounds)
            found = rates(figures, bench.cpu, epochs * rows)
            results.add(shape, found, "\n".join([title, table(figures, args.ways[0]), *rate_lines(found)]))


if __name__ == "__main__":
    main()
