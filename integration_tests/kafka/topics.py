"""A topic as a source of the rows that the tests' sinks know: `file` is the partition, and `id` the offset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration_tests.spark.world import KINDS, WORDS, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.testing.servers import KafkaCluster  # drivers import this module and start sooner without it

PER_TRIGGER = 6
SCHEMA = "kind string, word string"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with two partitions."""

    kafka: KafkaCluster
    name: str

    @property
    def place(self) -> str:
        """The driver's options for it."""
        return f"{self.kafka.bootstrap}/{self.name}"

    def feed(self, messages: int, partitions: tuple[int, ...] = (0, 1)) -> None:
        """Add so many messages to each of the partitions."""
        for partition in partitions:
            first = self.ends()[partition]
            self.kafka.send(self.name, [message(first + n) for n in range(messages)], partition=partition)

    def ends(self) -> dict[int, int]:
        return self.kafka.end_offsets(self.name)

    def rows(self) -> Counter[Row]:
        """Every row that the topic holds, by a reader that is not Spark's."""
        found: Counter[Row] = Counter()
        for record in self.kafka.read(self.name):
            content = json.loads(record.value or b"{}")
            found[record.offset, record.partition, content["kind"], content["word"]] += 1
        return found


def message(number: int) -> str:
    """The value of a message."""
    return json.dumps({"kind": KINDS[number % len(KINDS)], "word": WORDS[number % len(WORDS)]})


def stream(
    spark: SparkSession, place: str, *, per_trigger: int = PER_TRIGGER, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of a topic, BOOTSTRAP/TOPIC, by Spark's own source."""
    from pyspark.sql import functions as f

    bootstrap, _, name = place.partition("/")
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_trigger), **(options or {})}
    frame = source.options(**given).load()
    content = f.from_json(f.col("value").cast("string"), SCHEMA)
    return frame.select(
        f.col("offset").alias("id"), f.col("partition").cast("long").alias("file"), content.kind, content.word
    ).toDF("id", "file", "kind", "word")
