"""Real servers for tests, for examples and for trying things out.

    with servers.cassandra() as server:
        CassandraSink("shop.orders", contact_points=server.hosts, port=server.port)

One that the user has (`EPOCHAL_CASSANDRA`, `EPOCHAL_HDFS`), or containers, or processes of this machine from Maven's
jars: `routes` says which, and `docs/servers.md` all of it. Everything is on loopback, and ends with the process that
asked for it, even if that is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from epochal.testing.servers import (
    cassandra_docker,
    cassandra_given,
    cassandra_local,
    containers,
    hdfs_docker,
    hdfs_given,
    hdfs_local,
    routes,
)
from epochal.testing.servers.cluster import CassandraCluster, Node
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.options import CassandraOptions, HdfsOptions, ServerOptions
from epochal.testing.servers.routes import Route

__all__ = ["CassandraCluster", "HdfsCluster", "Node", "Route", "ServerFailed", "cassandra", "hdfs"]


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

    `settings` are keys of cassandra.yaml; files among them are given as `Path`. A `folder` keeps its data, which is
    otherwise removed; nodes that use it again get the ports they had, unless `port` says another. `own` asks for one
    that may be killed and paused; so does every other option, for a server that the user runs has its own settings.
    `java_options` come after those that make a node start quickly: ``-XX:TieredStopAtLevel=4`` gives one for
    benchmarks. `timeout` is for each node's start, in seconds; `tell` hears what takes long.
    """
    options = CassandraOptions(
        nodes=nodes,
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        java_options=tuple(java_options),
        timeout=timeout,
    )
    route = routes.choose(
        routes.CASSANDRA,
        own=own or options.needs_own_server,
        engine_answers=lambda: _may_be_containers(options),
    )
    match route:
        case Route.GIVEN:
            return cassandra_given.connect(routes.endpoint(routes.CASSANDRA, routes.CASSANDRA_PORT))
        case Route.DOCKER:
            return cassandra_docker.start(options, tell)
        case Route.LOCAL:
            return cassandra_local.start(options, tell)


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
    """HDFS 3.5 on 127.0.0.1, ready to use: a NameNode and one to three DataNodes, each a process of its own.

    `replication` is that of its files, two where there are two DataNodes. `settings` are keys of hdfs-site.xml and
    core-site.xml. The other options are those of `cassandra`; `port` is the NameNode's.
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
    route = routes.choose(
        routes.HDFS,
        own=own or options.needs_own_server,
        engine_answers=lambda: _may_be_containers(options) and hdfs_docker.can_be_reached(),
    )
    match route:
        case Route.GIVEN:
            return hdfs_given.connect(replication)
        case Route.DOCKER:
            return hdfs_docker.start(options, tell)
        case Route.LOCAL:
            return hdfs_local.start(options, tell)


def _may_be_containers(options: ServerOptions) -> bool:
    # A container would not keep a folder of this machine.
    return options.folder is None and containers.engine_answers()
