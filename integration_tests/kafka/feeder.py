"""Feeds a topic, from a process of its own, for as long as drivers and brokers die.

    python -m integration_tests.kafka.feeder HOST:PORT/TOPIC STOP-FILE

The first partition grows twice as fast as the second. A broker that is away is tried again; what it took without an
answer is then in the topic twice, as two messages. Its last line is JSON: how often it sent and how often it could not.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from epochal.testing.servers import KafkaCluster, Route, ServerFailed
from epochal.testing.servers.given_node import GivenNode
from epochal.testing.servers.routes import KAFKA, parse
from integration_tests.kafka.topics import message

PAUSE = 0.1  # seconds


def main(place: str, stop: Path) -> None:
    """Feed until the stop file is there."""
    bootstrap, _, name = place.partition("/")
    endpoint = parse(bootstrap, 0)
    nodes = [GivenNode("Kafka", KAFKA, host, endpoint.port) for host in endpoint.hosts]
    kafka = KafkaCluster(nodes, endpoint.port, route=Route.GIVEN, end=lambda: None)
    sent = failed = 0
    while not stop.exists():
        try:
            kafka.send(name, [message(sent)], partition=1 if sent % 3 == 2 else 0)
            sent += 1
        except (OSError, ServerFailed):
            failed += 1
        time.sleep(PAUSE)
    print(json.dumps({"sent": sent, "failed": failed}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
