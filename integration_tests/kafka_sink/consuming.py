"""What a reader of committed messages sees of a topic, by Kafka's own client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from epochal import KafkaSink

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that a sink writes to."""

    bootstrap: str
    topic: str

    def sink(self, **options: Any) -> KafkaSink:
        return KafkaSink(self.topic, bootstrap_servers=self.bootstrap.split(","), **options)

    def messages(self, *, committed: bool = True) -> list[Message]:
        """All messages that are there now; those of open and rolled back transactions too, if asked."""
        with consumer(self.bootstrap, committed=committed) as reader:
            parts = reader.list_topics(self.topic, timeout=30).topics[self.topic].partitions
            reader.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in parts])
            found: list[Message] = []
            at_end: set[int | None] = set()
            deadline = time.monotonic() + PATIENCE
            while len(at_end) < len(parts):
                assert time.monotonic() < deadline, f"{self.topic} is not readable to its end"
                for message in reader.consume(10_000, timeout=0.5):
                    fault = message.error()
                    if fault is None:
                        found.append(message)
                    elif fault.name() == "_PARTITION_EOF":
                        at_end.add(message.partition())
            return found


@contextmanager
def consumer(bootstrap: str, *, committed: bool = True) -> Iterator[Consumer]:
    """A consumer of everything."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        yield made
    finally:
        made.close()
