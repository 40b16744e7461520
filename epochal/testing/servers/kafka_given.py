"""A Kafka cluster that the user runs."""

from __future__ import annotations

from epochal.testing.servers import given_node
from epochal.testing.servers.kafka_cluster import KafkaCluster
from epochal.testing.servers.routes import KAFKA, Endpoint, Route

PATIENCE = 10.0  # seconds; it should be running already


def connect(endpoint: Endpoint) -> KafkaCluster:
    """Check that it accepts connections."""
    nodes = given_node.connect("Kafka", KAFKA, endpoint, PATIENCE)
    return KafkaCluster(nodes, endpoint.port, route=Route.GIVEN, end=lambda: None)
