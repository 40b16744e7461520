"""Topics of the tests' own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest

from epochal.testing.servers import KafkaCluster
from integration_tests.kafka_sink.consuming import Target

Targets = Callable[[], Target]


@pytest.fixture
def targets(broker: KafkaCluster, request: pytest.FixtureRequest) -> Targets:
    """Makes topics of the test's own, with two partitions."""

    def made() -> Target:
        name = re.sub(r"\W+", "-", request.node.name)[:60] + uuid.uuid4().hex[:8]
        broker.create_topic(name, partitions=2)
        return Target(broker.bootstrap, name)

    return made


@pytest.fixture
def target(targets: Targets) -> Target:
    """A topic of the test's own, with two partitions."""
    return targets()
