"""Cassandra as local processes, on 127.0.0.1 and, with three nodes, 127.0.0.2 and 127.0.0.3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from epochal.testing.servers import cassandra_java, cassandra_yaml, cql
from epochal.testing.servers.artifacts import CASSANDRA, jars
from epochal.testing.servers.cassandra_yaml import NodePlace
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.java import find_java
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.options import CassandraOptions
from epochal.testing.servers.ports import free_port, recall, remember
from epochal.testing.servers.routes import Route
from epochal.testing.servers.supervisor import Supervisor


def start(options: CassandraOptions, tell: Callable[[str], None] | None) -> CassandraCluster:
    """Start the first node, then the others: they use it as their seed."""
    java = find_java()
    found = jars(CASSANDRA, java, tell)
    supervisor = Supervisor(options.folder)
    try:
        hosts = [f"127.0.0.{number + 1}" for number in range(options.nodes)]
        port, storage_port = _ports(supervisor.folder, hosts, options.port)
        nodes = []
        for number, host in enumerate(hosts):
            home = supervisor.folder / f"node{number + 1}"
            place = NodePlace(
                number=number,
                nodes=options.nodes,
                listen=host,
                rpc=host,
                seed=hosts[0],
                storage_port=storage_port,
                port=port,
                folder=str(home),
            )
            command = cassandra_java.command(java, found, home, nodes=options.nodes, options=options.java_options)
            nodes.append(LocalNode(supervisor, place, command, options))

        end = partial(end_all, supervisor, nodes, in_order=options.folder is not None)
        tls = cassandra_yaml.has_tls(options.settings)
        cluster = CassandraCluster(nodes, port, route=Route.LOCAL, end=end, tls=tls, timeout=options.timeout)
        for some in (nodes[:1], nodes[1:]):
            if some and tell:
                tell(f"starting {' and '.join(f'{node.host}:{port}' for node in some)}")
            for node in some:
                node.launch()
            for node in some:
                node.wait_until_ready()
        cluster.wait_until_whole()
    except BaseException:
        supervisor.end()
        raise
    return cluster


class LocalNode(LocalProcess):
    """A node as a process of the supervisor."""

    def __init__(
        self, supervisor: Supervisor, place: NodePlace, command: Sequence[str], options: CassandraOptions
    ) -> None:
        folder = Path(place.folder)
        name = f"Cassandra on {place.rpc}:{place.port}"
        super().__init__(supervisor, name, command, folder, folder / "system.log", timeout=options.timeout)
        self._place, self._options = place, options
        self._fresh = True

    @property
    def host(self) -> str:
        return self._place.rpc

    def launch(self) -> None:
        self._fresh = not (self._folder / "data").exists()
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        values = cassandra_yaml.settings(self._place, self._options.settings)
        (self._folder / "cassandra.yaml").write_text(cassandra_yaml.text(values))
        (self._folder / "logback.xml").write_text(cassandra_java.LOGBACK)
        super().launch()

    def wait_until_ready(self) -> None:
        self.wait_until(self._answers)

    def _answers(self) -> bool:
        if cassandra_yaml.asks_for_certificates(self._options.settings):
            return cql.speaks_tls(self.host, self._place.port)
        tls = cassandra_yaml.has_tls(self._options.settings)
        # In a folder that was used before, the default password may have been changed.
        return cql.answers(self.host, self._place.port, tls=tls, log_in=self._fresh)


def _ports(folder: Path, hosts: Sequence[str], wanted: int | None) -> tuple[int, int]:
    """Ports for clients and between nodes. A folder that was used before keeps its ports: nodes have stored them."""
    known = recall(folder)
    if known is not None:
        if known["nodes"] != len(hosts):
            raise ServerFailed(f"{folder} holds a cluster with nodes={known['nodes']}, not {len(hosts)}")
        port, storage_port = wanted or known["port"], known["storage_port"]
    else:
        port = wanted or free_port(hosts)
        storage_port = free_port(hosts, [port])
    cluster = {"nodes": len(hosts), "port": port, "storage_port": storage_port}
    remember(folder, cluster, [(host, one) for host in hosts for one in (port, storage_port)])
    return port, storage_port
