"""Topics of the tests' own."""

from __future__ import annotations

import re
import uuid

import pytest

from epochal.testing.servers import KafkaCluster
from integration_tests.kafka.topics import Topic


@pytest.fixture
def kafka(broker: KafkaCluster) -> KafkaCluster:
    """The broker of the tests of kafka_sink too."""
    return broker


@pytest.fixture
def topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> Topic:
    """A topic of the test's own, with two partitions."""
    name = re.sub(r"\W+", "-", request.node.name)[:60] + uuid.uuid4().hex[:8]
    kafka.create_topic(name, partitions=2)
    return Topic(kafka, name)
