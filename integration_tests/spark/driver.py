"""A driver as users have them: one query, run to its end. Started by tests, in a process of its own.

    python -m integration_tests.spark.driver ROOT --commit checkpoint --sinks all

The exit code tells how it ended; what failpoints it meets stands in its environment.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import epochal
from epochal.sinks.files.options import Format
from epochal.spark_plugins.listener import _Events
from epochal.spark_plugins.run import Run
from epochal.txn.coordinator import Coordinator
from epochal.txn.journal import Journal
from integration_tests.kafka import topics
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, SCHEMA, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Sink = (
        epochal.RollingFileSink | epochal.DeltaSink | epochal.CassandraSink | epochal.KafkaSink | epochal.PostgresSink
    )

PLAIN = {"spark.jars": ""}  # without Delta's own code, which appends to plain tables do not need


LATE = 5  # files


class Ending(IntEnum):
    """How a driver ended."""

    DONE = 0
    FAILED = 1
    FENCED_OUT = 3
    CONCURRENT_UPDATE = 4
    INTERRUPTED = 5
    TWO_DRIVERS = 6
    KILLED = -9


def main() -> Ending:
    """Run the query and say how it ended."""
    arguments = parsed(sys.argv[1:])
    prepare(arguments)
    if arguments.log:
        logging.getLogger().addHandler(logging.FileHandler(arguments.log))
    try:
        run(session_of(arguments), arguments)
    except KeyboardInterrupt:
        return Ending.INTERRUPTED
    except Exception as fault:  # noqa: BLE001  # the exit code and the output tell it
        traceback.print_exc()
        return ending_of(fault)
    return Ending.DONE


def prepare(arguments: argparse.Namespace) -> None:
    """What holds for the whole process."""
    faulthandler.register(signal.SIGQUIT)  # asked as Java is, it tells where its threads stand
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run with it ignored
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if arguments.small_journal:
        _compact_often()
    if arguments.deaf:
        _hear_nothing()
    if arguments.unaware:
        _look_for_nobody()


def session_of(arguments: argparse.Namespace) -> SparkSession:
    """The driver's Spark."""
    plain = {} if arguments.sinks == "by-delta" else PLAIN
    given = dict(setting.split("=", 1) for setting in arguments.conf)
    conf = {**CHEAP, **SHORT_LIVED, **LOOPBACK, **plain, **given}
    return epochal.session("driver", master=arguments.master, conf=conf, kafka=bool(arguments.kafka), s3=arguments.s3)


def ending_of(fault: Exception) -> Ending:
    """How a driver ends that has failed so."""
    if isinstance(fault, epochal.FencedOut):
        return Ending.FENCED_OUT
    if isinstance(fault, epochal.TwoDrivers):
        return Ending.TWO_DRIVERS
    if "epochal.txn.errors.FencedOut" in str(fault):
        return Ending.FENCED_OUT  # as Spark's own handle tells it
    return Ending.CONCURRENT_UPDATE if "CONCURRENT_STREAM_LOG_UPDATE" in str(fault) else Ending.FAILED


def sinks_of(
    world: World,
    which: str,
    cassandra: str = "",
    at: str = "",
    *,
    digest: bool = False,
    postgres: str = "",
    topic: str = "",
    staging: str = "",
) -> list[Sink]:
    """The sinks that tests drive: different in everything, so that no step of any goes unseen."""

    def place(path: Path) -> str:
        return f"{at}/{path.name}" if at else str(path)

    first = epochal.RollingFileSink(place(world.first), bucket_by=["kind"], marker="epoch", name="first", digest=digest)
    second = epochal.RollingFileSink(
        place(world.second),
        format="json",
        bucket_by=["word"],
        max_rows_per_file=2,
        marker="bucket",
        name="second",
        digest=digest,
    )
    table = epochal.DeltaSink(
        place(world.table),
        partition_by=["kind"],
        properties={"delta.checkpointInterval": "3"},
        name="table",
        digest=digest,
    )
    sinks: list[Sink] = [first, second, table]
    if which == "json":
        return [epochal.RollingFileSink(place(world.first), format="json", name="first", digest=digest)]
    if which == "letters":
        # A kind that is empty is no partition: a third of all rows go to the dead letters.
        letters = epochal.RollingFileSink(place(world.second), format="json", name="letters")
        return [epochal.CassandraSink(dead_letters=letters, name="kinds", **_reached(cassandra, "kinds"))]
    if which == "hours":
        return hourly_sinks(place(world.first), place(world.second))
    if which.startswith("rolling"):
        paths = [place(path) for path in (world.first, world.second, world.table)]
        return rolling_sinks(paths, *which.split("-")[1:], digest=digest)
    if which in ("cassandra", "kinds"):
        rows, totals = cassandra_sinks(cassandra, staging)
        return [rows, totals] if which == "cassandra" else [first, table, rows, totals]
    if which in ("postgres", "all-kinds"):
        tables = postgres_sinks(postgres)
        if which == "postgres":
            return tables
        return [first, table, *cassandra_sinks(cassandra), *tables, kafka_sink(topic, digest=digest)]
    if which == "parts":
        return [kafka_sink(topic, digest=digest, **IN_PARTS)]
    if which in ("topic", "topics"):
        messages = kafka_sink(topic, digest=digest)
        return [messages] if which == "topic" else [first, table, messages]
    if which == "by-delta":
        # Both need Delta's own code: one is merged into, the other has a property that closes the gate to delta-rs.
        merged = epochal.DeltaSink(place(world.second), mode="upsert", keys=["id"], name="merged")
        tracked = epochal.DeltaSink(place(world.table), properties={"delta.enableRowTracking": "true"}, name="tracked")
        return [merged, tracked]
    return {"1": sinks[:1], "2": sinks[:2], "delta": sinks[2:], "all": sinks}[which]


MAX_ROWS = 5
POLICIES = {
    "rows": epochal.Rolling(max_rows=MAX_ROWS),
    "age": epochal.Rolling(max_age="1 s"),
    "idle": epochal.Rolling(max_rows=100, inactivity="1 s"),
    "long": epochal.Rolling(max_age="1 h"),
}
BYTES = {"parquet": 3000, "orc": 1500, "avro": 700, "json": 250, "csv": 50}  # two or three pieces of an epoch each
BY_CLOCK = ("age", "idle")
GROUPS = "groups"  # Parquet whose row groups are copied, however small they are


def policy_of(policy: str, format_: str) -> epochal.Rolling:
    """A policy by its name; what is a small number of bytes depends on the format."""
    found = epochal.Rolling(max_bytes=BYTES[format_]) if policy == "bytes" else POLICIES[policy]
    return replace(found, merge_below=1) if format_ == GROUPS else found


def rolling_sinks(paths: Sequence[str], policy: str, formats: str, *, digest: bool = False) -> list[Sink]:
    """Parts that stay open over epochs, of up to three formats: rolling-rows-parquet,json and the like."""
    names = formats.split(",")
    header = {"header": "true"}
    return [
        epochal.RollingFileSink(
            path,
            format="parquet" if format_ == GROUPS else cast("Format", format_),
            bucket_by=[column],
            rolling=policy_of(policy, format_),
            # By the clock a part may close with one epoch in it: so that there is always something to join.
            max_rows_per_file=1 if policy in BY_CLOCK else None,
            options=header if format_ == "csv" else {},
            name=name,
            digest=digest and format_ != "avro",  # for which there is none
        )
        for path, format_, column, name in zip(
            paths, names, ("kind", "word", "kind"), ("first", "second", "third"), strict=False
        )
    ]


def hourly_sinks(first: str, second: str) -> list[Sink]:
    """Buckets that are marked when their hour is over; in the second, no part appears before that."""
    hour, complete = epochal.TimeBucket("at", "hour"), epochal.Complete(by="watermark")
    return [
        epochal.RollingFileSink(first, bucket_by=[hour], marker=complete, name="first"),
        epochal.RollingFileSink(
            second, format="json", bucket_by=[hour], marker=complete, rolling=POLICIES["long"], name="second"
        ),
    ]


def in_hours(frame: DataFrame) -> DataFrame:
    """An hour for each file of the source, with a watermark; each fifth file has a row that is late by five hours."""
    from pyspark.sql import functions as f

    late = (f.col("file") % LATE == 0) & (f.col("file") > 0) & (f.col("id") % ROWS == 0)
    hour = f.when(late, f.col("file") - LATE).otherwise(f.col("file"))
    at = f.timestamp_seconds(hour * 3600 + f.col("id") % ROWS * 600)
    return frame.withColumn("at", at).withWatermark("at", "0 seconds")


def cassandra_sinks(place: str, staging: str = "") -> list[epochal.CassandraSink]:
    """Two tables of the keyspace in HOST:PORT/KEYSPACE: every row, and totals to which every epoch adds."""
    rows = epochal.CassandraSink(name="rows", staging=f"{staging}/rows" if staging else None, **_reached(place, "rows"))
    totals = epochal.CassandraSink(
        name="totals",
        staging=f"{staging}/totals" if staging else None,
        mode="accumulate",
        totals={"id": "sum", "rows": "count", "file": "max"},
        drop=["kind"],
        **_reached(place, "totals"),
    )
    return [rows, totals]


def postgres_sinks(place: str) -> list[Sink]:
    """Two tables of the schema in HOST:PORT/DATABASE/SCHEMA: every row, in one piece, and totals, by a staged table."""
    endpoint, database, schema = place.split("/")
    host, _, port = endpoint.rpartition(":")
    where: dict[str, Any] = {
        "hosts": [host],
        "port": int(port),
        "database": database,
        "user": "epochal",
        "ledger_schema": f"{schema}_epochal",
    }
    rows = epochal.PostgresSink(f"{schema}.rows", name="pg-rows", **where)
    totals = epochal.PostgresSink(
        f"{schema}.totals",
        name="pg-totals",
        mode="accumulate",
        keys=["word"],
        totals={"id": "sum", "rows": "count", "file": "max"},
        drop=["kind"],
        **where,
    )
    return [rows, totals]


# Two messages are as many as fit into a transaction.
IN_PARTS: dict[str, Any] = {"transactions": "parts", "lanes": 2, "send_rate": 40}


def kafka_sink(place: str, *, digest: bool = False, **options: Any) -> epochal.KafkaSink:
    """The topic in HOST:PORT/TOPIC, with ids as keys; HOST:PORT/TOPIC/LEDGER for a ledger of its own."""
    server, topic, *ledger = place.split("/")
    options |= {"ledger_topic": ledger[0]} if ledger else {}
    return epochal.KafkaSink(
        topic,
        bootstrap_servers=[server],
        key="CAST(id AS STRING)",
        transaction_timeout="20 s",
        digest=digest,
        **options,
    )


def _reached(place: str, table: str) -> dict[str, Any]:
    endpoint, _, keyspace = place.partition("/")
    hosts, _, port = endpoint.rpartition(":")
    return {"table": f"{keyspace}.{table}", "contact_points": hosts.split(","), "port": int(port)}


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Start the query and wait for its end."""
    world = World(Path(arguments.root))
    sinks = sinks_of(
        world,
        arguments.sinks,
        arguments.cassandra,
        arguments.targets or arguments.at,
        digest=arguments.digest,
        postgres=arguments.postgres,
        topic=arguments.topic,
        staging=arguments.staging,
    )
    checkpoint = f"{arguments.at}/checkpoint" if arguments.at else str(world.checkpoint)
    writer = epochal.EpochWriter(
        *sinks,
        commit=arguments.commit,
        journal=arguments.journal or None,
        takeover_timeout=arguments.takeover_timeout,
    )
    if arguments.kafka:
        frame = topics.stream(spark, arguments.kafka, per_trigger=arguments.offsets_per_trigger)
    else:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", arguments.files_per_trigger)
        frame = files.parquet(f"file:{world.source}")
    if arguments.sinks == "hours":
        frame = in_hours(frame)
    if arguments.sinks == "parts":
        frame = frame.repartition(2)  # two staged files, and so two lanes
    if arguments.slow_gate:
        frame = _slowed(frame, arguments.slow_gate)
    stream = frame.writeStream.option("checkpointLocation", checkpoint)
    if arguments.every:
        stream = stream.trigger(processingTime=arguments.every)
    elif not arguments.endless:
        stream = stream.trigger(availableNow=True)
    if arguments.gate_after_batch:
        # The batch is prepared and handed back; Spark's commits/N comes next.
        def batch(rows: DataFrame, epoch: int) -> None:
            writer(rows, epoch)
            _stop_at(Path(arguments.gate_after_batch))

        stream.foreachBatch(batch).start().awaitTermination()
        writer.settle()
    elif arguments.plain:
        stream.foreachBatch(writer).start().awaitTermination()
    else:
        query = writer.start(stream) if not arguments.standby else _stand_by(writer, stream, arguments)
        if query is None:
            return
        if arguments.wait_elsewhere:
            wait_until(lambda: not os.path.exists(arguments.wait_elsewhere), "the gate to be opened")
        query.awaitTermination()
    if arguments.stop_session:
        spark.stop()


def _stand_by(
    writer: epochal.EpochWriter, stream: DataStreamWriter, arguments: argparse.Namespace
) -> epochal.EpochQuery | None:
    return epochal.standby(
        writer, stream, zookeeper=arguments.zookeeper or None, when_ended="leave", warm=not arguments.unwarmed
    )


def _stop_at(gate: Path) -> None:
    """Make the gate and wait until it is gone; once only."""
    passed = gate.with_suffix(".passed")
    if not passed.exists():
        passed.touch()
        gate.touch()
        wait_until(lambda: not gate.exists(), f"{gate} to be opened")


def _slowed(frame: DataFrame, gate: str) -> DataFrame:
    """Rows of every other file wait while the gate is there, after they have said where they are."""
    from pyspark.sql import functions as f

    @f.udf("string", useArrow=False)
    def slow(word: str, file: int) -> str:
        import time  # in the executor, which has none of our modules

        if file % 2 and os.path.exists(gate):
            with open(f"{gate}.daemon-{os.getppid()}", "w", encoding="ascii"):
                pass
            while os.path.exists(gate):
                time.sleep(0.01)
        return word

    return frame.withColumn("word", slow("word", "file"))


def _compact_often() -> None:
    """Compaction each few epochs instead of each few dozen."""
    Coordinator.__init__ = partialmethod(Coordinator.__init__, retain=2)  # type: ignore[assignment,method-assign]
    Journal.compact = partialmethod(Journal.compact, slack=2)  # type: ignore[assignment,method-assign]
    Journal.plan = partialmethod(Journal.plan, slack=2)  # type: ignore[assignment,method-assign]


def _hear_nothing() -> None:
    """Only the end of the interpreter is left to settle the last epoch."""
    _Events.onQueryProgress = _Events.onQueryIdle = _Events.onQueryTerminated = _Events.onQueryStarted  # type: ignore[method-assign]


def _look_for_nobody() -> None:
    """A newer driver is noticed only in a batch."""
    Run._look = lambda self: None  # type: ignore[method-assign]


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--commit", default="checkpoint")
    parser.add_argument(
        "--sinks",
        default="2",
        help="1, 2, json, delta, all, by-delta, cassandra, kinds, postgres, all-kinds, letters, topic, topics, parts, "
        "hours, rolling-..",
    )
    parser.add_argument("--cassandra", default="", help="HOST:PORT/KEYSPACE, with the tables rows and totals, or kinds")
    parser.add_argument("--postgres", default="", help="HOST:PORT/DATABASE/SCHEMA, with the tables rows and totals")
    parser.add_argument("--topic", default="", help="HOST:PORT/TOPIC to write to")
    parser.add_argument("--at", default="", help="a URI for checkpoint and targets, instead of ROOT")
    parser.add_argument("--targets", default="", help="a URI for the targets alone")
    parser.add_argument("--staging", default="", help="a URI for the staged rows of Cassandra")
    parser.add_argument("--journal", default="", help="a URI for the journal")
    parser.add_argument("--s3", action="store_true", help="a session that reaches S3")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's")
    parser.add_argument("--log", default="", help="a file for the log, for tests that watch it")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--kafka", default="", help="HOST:PORT/TOPIC, a source instead of files")
    parser.add_argument("--offsets-per-trigger", type=int, default=topics.PER_TRIGGER)
    parser.add_argument("--endless", action="store_true", help="wait for more when all is read")
    parser.add_argument("--every", default="", help="the same with a trigger of this processing time")
    parser.add_argument("--takeover-timeout", type=float, default=0.0, help="seconds to wait for a driver before it")
    parser.add_argument("--standby", action="store_true", help="wait until it is this one's turn")
    parser.add_argument("--unwarmed", action="store_true", help="with --standby: without a throw-away query")
    parser.add_argument("--zookeeper", default="", help="with --standby: HOST:PORT, keep the lease there")
    parser.add_argument("--unaware", action="store_true", help="see a newer driver only in a batch, as one that stalls")
    parser.add_argument("--plain", action="store_true", help="foreachBatch(writer) without writer.start")
    parser.add_argument("--stop-session", action="store_true", help="stop Spark before the interpreter ends")
    parser.add_argument("--deaf", action="store_true", help="no event of Spark's is heard")
    parser.add_argument("--small-journal", action="store_true", help="compact the journal each few epochs")
    parser.add_argument("--gate-after-batch", default="", help="a file to wait at before Spark's commits/N")
    parser.add_argument("--wait-elsewhere", default="", help="a file to wait at, before waiting for the query")
    parser.add_argument("--digest", action="store_true", help="sinks digest their rows")
    parser.add_argument("--slow-gate", default="", help="a file that tasks wait for")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
