"""A ZooKeeper that the user runs."""

from __future__ import annotations

from epochal.testing.servers import given_node
from epochal.testing.servers.routes import ZOOKEEPER, Endpoint, Route
from epochal.testing.servers.zookeeper_cluster import ZooKeeperCluster

PATIENCE = 10.0  # seconds; it should be running already


def connect(endpoint: Endpoint) -> ZooKeeperCluster:
    """Check that it accepts connections."""
    nodes = given_node.connect("ZooKeeper", ZOOKEEPER, endpoint, PATIENCE)
    return ZooKeeperCluster(nodes, endpoint.port, route=Route.GIVEN, end=lambda: None)
