"""A consumer of committed messages, in a process of its own, for as long as drivers run and die.

    python -m integration_tests.kafka_sink.reader ROOT HOST:PORT/TOPIC STOP-FILE

Every message that it gets must belong to an epoch that is decided by then. Its last line is JSON: the rows that it got,
and what it got too early.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from integration_tests.kafka_sink.checks import row_of
from integration_tests.kafka_sink.consuming import Target, consumer
from integration_tests.spark.checks import early
from integration_tests.spark.world import Row, World


def main(world: World, target: Target, stop: Path) -> None:
    """Read until the stop file is there, and then to the end."""
    rows: list[Row] = []
    faults: list[int] = []
    at_end: set[int | None] = set()
    with consumer(target.bootstrap) as reader:
        parts = reader.list_topics(target.topic, timeout=30).topics[target.topic].partitions
        reader.assign([TopicPartition(target.topic, number, OFFSET_BEGINNING) for number in parts])
        stopping = False
        while len(at_end) < len(parts) or not stopping:
            if not stopping and stop.exists():
                stopping = True
                at_end.clear()
                reader.assign([*reader.position(reader.assignment())])  # each end is reported once more
            first = reader.poll(0.2)
            messages: list[Message] = [] if first is None else [first, *reader.consume(1000, timeout=0)]
            fresh = []
            for message in messages:
                fault = message.error()
                if fault is None:
                    fresh.append(row_of(message))
                    at_end.discard(message.partition())
                elif fault.name() == "_PARTITION_EOF":
                    at_end.add(message.partition())
            # commits/ comes last: what is there by now was decided before or while we looked.
            faults += sorted(early(world, {row[1] for row in fresh})) if fresh else []
            rows += fresh
    print(json.dumps({"rows": rows, "faults": faults}), flush=True)


if __name__ == "__main__":
    bootstrap, _, topic = sys.argv[2].partition("/")
    main(World(Path(sys.argv[1])), Target(bootstrap, topic), Path(sys.argv[3]))
