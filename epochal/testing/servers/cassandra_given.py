"""A Cassandra cluster that the user runs."""

from __future__ import annotations

from typing import NoReturn

from epochal.testing.servers import cql
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.routes import CASSANDRA, Endpoint, Route
from epochal.testing.servers.waiting import wait_until

PATIENCE = 10.0  # seconds; it should be running already


def connect(endpoint: Endpoint) -> CassandraCluster:
    """Check that it accepts connections."""
    wait_until(
        lambda: any(cql.listens(host, endpoint.port) for host in endpoint.hosts),
        PATIENCE,
        lambda: f"nothing listens at {CASSANDRA}={','.join(endpoint.hosts)}:{endpoint.port}",
    )
    nodes = [GivenNode(host, endpoint.port) for host in endpoint.hosts]
    return CassandraCluster(nodes, endpoint.port, route=Route.GIVEN, end=lambda: None)


class GivenNode:
    """A node that the user runs: tests can connect to it, but not control it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    @property
    def name(self) -> str:
        return f"Cassandra on {self._host}:{self._port}"

    @property
    def host(self) -> str:
        return self._host

    @property
    def pid(self) -> int:
        self._refuse()

    @property
    def running(self) -> bool:
        return cql.listens(self._host, self._port)

    def start(self) -> None:
        self._refuse()

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        self._refuse()

    def log_tail(self) -> str:
        return ""

    def _refuse(self) -> NoReturn:
        raise ServerFailed(
            f"{self._host}:{self._port} was given by {CASSANDRA}; only servers that epochal started can be stopped, "
            "killed or paused: ask for one with own=True"
        )
