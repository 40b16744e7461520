"""One broker for all tests of this folder; a test may kill it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from epochal.testing import servers
from epochal.testing.servers import KafkaCluster
from integration_tests.kafka_sink.consuming import Target

Targets = Callable[[], Target]


@pytest.fixture(scope="session")
def running_broker() -> Iterator[KafkaCluster]:
    # Transactions that have timed out are rolled back at once.
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with servers.kafka(own=True, settings=quick) as cluster:
        yield cluster


@pytest.fixture
def broker(running_broker: KafkaCluster) -> KafkaCluster:
    """A broker that was started once a run, and again if an earlier test has killed it."""
    for node in running_broker.nodes:
        node.start()
    return running_broker


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
