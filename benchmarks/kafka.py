"""Kafka: epochal's exactly-once sink against Spark's own, which is at-least-once.

    python -m benchmarks.kafka [--rounds 5] [--size 5x200000] [--json] [--only SHAPE]

All use one broker, which the benchmark starts, and a new topic for each run, with four partitions. Each run streams its
epochs and ends when the last one is committed; then a reader of committed messages counts them. A client's CPU time is
that of the driver, the JVM and the Python workers. ``small`` has values of about 60 bytes, ``wide`` of about 500.
"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks import command
from benchmarks.measure import CpuMeter, Figure, note, race, table
from benchmarks.streams import SourceStream
from epochal import EpochWriter, KafkaSink, session
from epochal.testing import servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SPARK = "Spark's Kafka sink"
EPOCHAL = "epochal"
WAYS = (SPARK, EPOCHAL)
SIZE = 5, 200_000  # epochs, and rows in each
PARTITIONS = 4
SHAPES = {"small": "s", "wide": "concat(s, repeat('x', 440))"}
KEY, VALUE = "CAST(id AS STRING)", "to_json(struct(id, s, d))"


class Bench:
    """One shape of rows."""

    def __init__(self, stream: SourceStream, server: servers.KafkaCluster, shape: str) -> None:
        self._stream, self._server, self._text = stream, server, SHAPES[shape]
        self.cpu: dict[str, list[float]] = {way: [] for way in WAYS}
        self._meter, self._used, self._topic = CpuMeter(), 0.0, ""

    def race(self, rounds: int) -> list[Figure]:
        how = {SPARK: self._spark, EPOCHAL: self._epochal}
        return race({way: partial(self._run, way, how[way]) for way in WAYS}, peer=SPARK, rounds=rounds)

    def _run(self, way: str, how: Callable[[Path, DataStreamWriter], None]) -> float:
        self._topic = f"bench-{uuid.uuid4().hex}"
        self._server.create_topic(self._topic, partitions=PARTITIONS)
        self._meter = CpuMeter(without=[node.pid for node in self._server.nodes])
        seconds = self._stream.run(how, count=self._count)
        self.cpu[way].append(self._used)
        self._server.delete_topic(self._topic)
        return seconds

    def _count(self) -> int:
        self._used = self._meter.seconds()
        settings = {"group.id": "bench", "isolation.level": "read_committed", "enable.partition.eof": True}
        reader = Consumer({"bootstrap.servers": self._server.bootstrap, "enable.auto.commit": False, **settings})
        reader.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        messages = ends = 0
        while ends < PARTITIONS:
            some = reader.consume(100_000, timeout=0.2)
            at_end = sum(message.error() is not None for message in some)
            messages, ends = messages + len(some) - at_end, ends + at_end
        reader.close()
        return messages

    def _shaped(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr("id", f"{self._text} AS s", "d")

    def _epochal(self, _: Path, writer: DataStreamWriter) -> None:
        exact = EpochWriter(KafkaSink(self._topic, bootstrap_servers=[self._server.bootstrap], key=KEY))

        def batch(frame: DataFrame, epoch: int) -> None:
            exact(self._shaped(frame), epoch)

        writer.foreachBatch(batch).start().awaitTermination()
        exact.settle()

    def _spark(self, _: Path, writer: DataStreamWriter) -> None:
        def batch(frame: DataFrame, _: int) -> None:
            messages = self._shaped(frame).selectExpr(f"{KEY} AS key", f"{VALUE} AS value")
            kafka = {"kafka.bootstrap.servers": self._server.bootstrap, "topic": self._topic}
            messages.write.format("kafka").options(**kafka).save()

        writer.foreachBatch(batch).start().awaitTermination()


def _found(figures: Sequence[Figure], bench: Bench, rows: int) -> dict[str, dict[str, float]]:
    return {
        f.name: {
            "rows_per_second": round(rows / f.median),
            "ratio": round(f.ratio, 3),
            "cpu_us_per_row": round(1e6 * statistics.median(bench.cpu[f.name][1:]) / rows, 1),
        }
        for f in figures
    }


def main() -> None:
    """Race and report."""
    args = command.parser("kafka", __doc__, only=SHAPES).parse_args()
    with (
        command.results(args) as results,
        servers.kafka(own=True, java_options=["-XX:TieredStopAtLevel=4", "-Xmx768m"], tell=note) as server,
    ):
        spark = session("benchmark", master="local[2]", conf={"spark.jars": ""}, kafka=True)
        for shape, (epochs, rows) in command.sizes(args, dict.fromkeys(SHAPES, SIZE)).items():
            title = f"{epochs} x {rows:,} rows, {shape}, one broker, local[2], {args.rounds} rounds"
            command.titled(title)
            bench = Bench(SourceStream(spark, results.home, epochs, rows), server, shape)
            figures = bench.race(args.rounds)
            found = _found(figures, bench, epochs * rows)
            rates = [
                f"{way:<28} {one['rows_per_second']:>9,} rows/s {one['cpu_us_per_row']:>9} us of CPU a row"
                for way, one in found.items()
            ]
            results.add(shape, found, "\n".join([title, table(figures, SPARK), *rates]))


if __name__ == "__main__":
    main()
