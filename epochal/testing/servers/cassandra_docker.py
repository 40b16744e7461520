"""Cassandra in containers.

Each node is published on its own loopback address, with the same port outside and inside, and advertises that address
to clients: a driver that asks one node for the others finds them. On their own network the nodes have fixed addresses,
which survive kills. The image must run Cassandra 5 in the foreground and respect JVM_EXTRA_OPTS and MAX_HEAP_SIZE, as
the official one does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.testing.servers import cassandra_yaml, containers, cql
from epochal.testing.servers.cassandra_yaml import NodePlace
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.containers import FILES, ContainerNode, Containers, Image
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.options import CassandraOptions
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.routes import CASSANDRA_IMAGE, Route

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = Image("cassandra:5.0", CASSANDRA_IMAGE)
HOME = "/var/lib/cassandra"
STORAGE_PORT = 7000
OPTIONS = (
    f"-Dcassandra.config=file://{FILES}/cassandra.yaml",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.consistent.rangemovement=false",
    "-XX:TieredStopAtLevel=1",
)


def start(options: CassandraOptions, tell: Callable[[str], None] | None) -> CassandraCluster:
    """Start the first node, then the others: they use it as their seed."""
    made = Containers(IMAGE, options)
    try:
        hosts = _hosts(options.nodes)
        port = options.port or free_port(["127.0.0.1"] if containers.elsewhere() else hosts)
        network, addresses = made.network_of(options.nodes)
        nodes = []
        for number, (host, address) in enumerate(zip(hosts, addresses, strict=True)):
            place = NodePlace(
                number=number,
                nodes=options.nodes,
                listen=address,
                seed=addresses[0],
                storage_port=STORAGE_PORT,
                port=port,
                folder=HOME,
                rpc="0.0.0.0",  # inside the container; outside it is published on loopback
                reached=host,
            )
            container = _configured(made.container_at(network, address), place, options)
            containers.publish(container, host, port)
            nodes.append(CassandraNode(container, host, port, options))
        tls = cassandra_yaml.has_tls(options.settings)
        cluster = CassandraCluster(nodes, port, route=Route.DOCKER, end=made.end, tls=tls, timeout=options.timeout)
        for some in (nodes[:1], nodes[1:]):
            for node in some:
                if tell:
                    tell(f"starting {node.host}:{port} in a container of {IMAGE.name}")
                made.launch(node.container)
            for node in some:
                node.wait_until_ready()
        cluster.wait_until_whole()
    except BaseException:
        made.end()
        raise
    return cluster


class CassandraNode(ContainerNode):
    """A node as a container."""

    def __init__(self, container: DockerContainer, host: str, port: int, options: CassandraOptions) -> None:
        super().__init__(container, f"Cassandra on {host}:{port}", host, timeout=options.timeout)
        self._port, self._options = port, options
        self._fresh = True

    def start(self) -> None:
        self._fresh = False
        super().start()

    def answers(self) -> bool:
        if cassandra_yaml.asks_for_certificates(self._options.settings):
            return cql.speaks_tls(self._host, self._port)
        tls = cassandra_yaml.has_tls(self._options.settings)
        return cql.answers(self._host, self._port, tls=tls, log_in=self._fresh)


def _configured(container: DockerContainer, place: NodePlace, options: CassandraOptions) -> DockerContainer:
    files: dict[Path, str] = {}
    values = cassandra_yaml.settings(place, containers.carried(options.settings, files))
    container.with_copy_into_container(cassandra_yaml.text(values).encode(), f"{FILES}/cassandra.yaml")
    containers.copy_into(container, files)
    return (
        container.with_env("JVM_EXTRA_OPTS", " ".join((*OPTIONS, *options.java_options)))
        .with_env("MAX_HEAP_SIZE", "1g")
        .with_env("HEAP_NEWSIZE", "128m")
    )


def _hosts(nodes: int) -> list[str]:
    """The addresses at which clients reach the nodes."""
    override = containers.elsewhere()
    if override is None:
        return [f"127.0.0.{number + 1}" for number in range(nodes)]
    if nodes > 1:
        raise ServerFailed(f"three nodes need three addresses, but TESTCONTAINERS_HOST_OVERRIDE is {override}")
    return [override]
