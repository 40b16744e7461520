"""Real servers for tests, for examples and for trying things out.

    with servers.cassandra() as server:
        CassandraSink("shop.orders", contact_points=server.hosts, port=server.port)

A server is one that the user runs (`EPOCHAL_CASSANDRA`, `EPOCHAL_HDFS`, `EPOCHAL_KAFKA`), a set of containers, or local
processes from Maven's jars: `routes` chooses, `docs/servers.md` has the details. Everything is on loopback, and ends
with the process that started it, even if that is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeVar

from epochal.testing.servers import (
    cassandra_docker,
    cassandra_given,
    cassandra_local,
    containers,
    hdfs_docker,
    hdfs_given,
    hdfs_local,
    kafka_given,
    kafka_local,
    routes,
)
from epochal.testing.servers.cluster import CassandraCluster, Node
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.kafka_cluster import KafkaCluster
from epochal.testing.servers.options import CassandraOptions, HdfsOptions, KafkaOptions, ServerOptions
from epochal.testing.servers.routes import Route

__all__ = [
    "CassandraCluster",
    "HdfsCluster",
    "KafkaCluster",
    "Node",
    "Route",
    "ServerFailed",
    "cassandra",
    "hdfs",
    "kafka",
]

Cluster = TypeVar("Cluster")


def cassandra(
    nodes: int = 1,
    *,
    settings: Mapping[str, object] | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    java_options: Sequence[str] = (),
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> CassandraCluster:
    """Cassandra 5, ready to answer, with one node or three. A context manager; or call its `stop`.

    `settings` are keys of cassandra.yaml; pass files as `Path`. A `folder` keeps the data, which is otherwise removed;
    nodes that use it again get the same ports, unless `port` is set. `own` asks for a server that may be killed and
    paused. Every other option implies it, because a server that the user runs has its own settings. `java_options`
    come after those for a quick start: use ``-XX:TieredStopAtLevel=4`` for benchmarks. `timeout` limits the start of
    each node, in seconds. `tell` is called with progress messages.
    """
    options = CassandraOptions(
        nodes=nodes,
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        java_options=tuple(java_options),
        timeout=timeout,
    )
    return _by_route(
        routes.CASSANDRA,
        options,
        own=own,
        given=lambda: cassandra_given.connect(routes.endpoint(routes.CASSANDRA, routes.CASSANDRA_PORT)),
        docker=lambda: cassandra_docker.start(options, tell),
        local=lambda: cassandra_local.start(options, tell),
    )


def hdfs(
    datanodes: int = 1,
    *,
    replication: int | None = None,
    settings: Mapping[str, object] | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    java_options: Sequence[str] = (),
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> HdfsCluster:
    """HDFS 3.5 on 127.0.0.1, ready to use: a NameNode and one to three DataNodes, each its own process.

    `replication` is that of its files: by default two, or one with a single DataNode. `settings` are keys of
    hdfs-site.xml and core-site.xml. The other options are those of `cassandra`; `port` is the NameNode's.
    """
    options = HdfsOptions(
        datanodes=datanodes,
        replication=replication,
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        java_options=tuple(java_options),
        timeout=timeout,
    )
    return _by_route(
        routes.HDFS,
        options,
        own=own,
        given=lambda: hdfs_given.connect(replication),
        docker=lambda: hdfs_docker.start(options, tell),
        local=lambda: hdfs_local.start(options, tell),
        can_be_reached=hdfs_docker.can_be_reached,
    )


def kafka(
    *,
    partitions: int = 1,
    settings: Mapping[str, object] | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    java_options: Sequence[str] = (),
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> KafkaCluster:
    """Kafka 4.1 on 127.0.0.1, ready to use: one broker that is its own controller (KRaft).

    `partitions` is the number that topics get that are made by their first message; `create_topic` takes its own.
    `settings` are keys of server.properties. The other options are those of `cassandra`.
    """
    options = KafkaOptions(
        partitions=partitions,
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        java_options=tuple(java_options),
        timeout=timeout,
    )
    return _by_route(
        routes.KAFKA,
        options,
        own=own,
        given=lambda: kafka_given.connect(routes.endpoint(routes.KAFKA, routes.KAFKA_PORT)),
        docker=None,
        local=lambda: kafka_local.start(options, tell),
    )


def _by_route(
    variable: str,
    options: ServerOptions,
    *,
    own: bool,
    given: Callable[[], Cluster],
    docker: Callable[[], Cluster] | None,
    local: Callable[[], Cluster],
    can_be_reached: Callable[[], bool] = lambda: True,
) -> Cluster:
    """The servers, by the first route that applies; containers only where they can do what is asked."""

    def engine_answers() -> bool:
        # A container cannot keep its data in a local folder.
        return docker is not None and options.folder is None and containers.engine_answers() and can_be_reached()

    match routes.choose(variable, own=own or options.needs_own_server, engine_answers=engine_answers):
        case Route.GIVEN:
            return given()
        case Route.LOCAL:
            return local()
        case Route.DOCKER if docker is not None:
            return docker()
    name = variable.removeprefix("EPOCHAL_").capitalize()
    raise ServerFailed(f"{name} is not run in containers; {routes.ROUTES}=local runs it as a process")
