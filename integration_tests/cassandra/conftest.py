"""One Cassandra for all tests of this folder that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from integration_tests.cassandra.tables import Keyspace, keyspace


@pytest.fixture(scope="session")
def mortal_cassandra() -> Iterator[CassandraCluster]:
    """Another one, for tests that kill and pause it; each leaves it running."""
    with servers.cassandra(own=True) as cluster:
        yield cluster


@pytest.fixture
def space(cassandra: CassandraCluster) -> Iterator[Keyspace]:
    """A keyspace of the test's own on the server of all."""
    with keyspace(cassandra) as made:
        yield made


@pytest.fixture(scope="session")
def common_space(cassandra: CassandraCluster) -> Iterator[Keyspace]:
    """A keyspace for many tests, each with a table of its own: a keyspace for each would be most of their time."""
    with keyspace(cassandra) as made:
        yield made
