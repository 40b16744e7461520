"""A Cassandra cluster that the user runs."""

from __future__ import annotations

from epochal.testing.servers import given_node
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.routes import CASSANDRA, Endpoint, Route

PATIENCE = 10.0  # seconds; it should be running already


def connect(endpoint: Endpoint) -> CassandraCluster:
    """Check that it accepts connections."""
    nodes = given_node.connect("Cassandra", CASSANDRA, endpoint, PATIENCE)
    return CassandraCluster(nodes, endpoint.port, route=Route.GIVEN, end=lambda: None)
