"""One broker for all tests of this folder; a test may kill it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from epochal.testing import servers
from epochal.testing.servers import KafkaCluster
from integration_tests.kafka.topics import Topic


@pytest.fixture(scope="session")
def running_kafka() -> Iterator[KafkaCluster]:
    with servers.kafka(own=True) as cluster:
        yield cluster


@pytest.fixture
def kafka(running_kafka: KafkaCluster) -> KafkaCluster:
    """A broker that was started once a run, and again if an earlier test has killed it."""
    for node in running_kafka.nodes:
        node.start()
    return running_kafka


@pytest.fixture
def topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> Topic:
    """A topic of the test's own, with two partitions."""
    name = re.sub(r"\W+", "-", request.node.name)[:60] + uuid.uuid4().hex[:8]
    kafka.create_topic(name, partitions=2)
    return Topic(kafka, name)
