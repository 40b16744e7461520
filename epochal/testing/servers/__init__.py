"""Real servers for tests, for examples and for trying things out.

    with servers.cassandra() as server:
        CassandraSink("shop.orders", contact_points=server.hosts, port=server.port)

A server is one that the user runs (`EPOCHAL_CASSANDRA`, `EPOCHAL_HDFS`, `EPOCHAL_KAFKA`, `EPOCHAL_ZOOKEEPER`,
`EPOCHAL_S3`, `EPOCHAL_POSTGRES`), a set of containers, or local processes, installed, from Maven's jars or from pip:
`routes` chooses, `docs/servers.md` has the details. Everything is on loopback, and ends with the process that started
it, even if that is killed.
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
    kafka_docker,
    kafka_given,
    kafka_local,
    postgres_docker,
    postgres_given,
    postgres_local,
    routes,
    s3_given,
    s3_local,
    zookeeper_given,
    zookeeper_local,
)
from epochal.testing.servers.cluster import CassandraCluster, Node
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.kafka_cluster import KafkaCluster
from epochal.testing.servers.options import (
    CassandraOptions,
    HdfsOptions,
    KafkaOptions,
    PostgresOptions,
    S3Options,
    ServerOptions,
    ZooKeeperOptions,
)
from epochal.testing.servers.postgres_cluster import PostgresServer
from epochal.testing.servers.routes import Route
from epochal.testing.servers.s3_cluster import S3Store
from epochal.testing.servers.zookeeper_cluster import ZooKeeperCluster

__all__ = [
    "CassandraCluster",
    "HdfsCluster",
    "KafkaCluster",
    "Node",
    "PostgresServer",
    "Route",
    "S3Store",
    "ServerFailed",
    "ZooKeeperCluster",
    "cassandra",
    "hdfs",
    "kafka",
    "postgres",
    "s3",
    "zookeeper",
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
        can_be_run=hdfs_docker.can_be_reached,
    )


def kafka(
    brokers: int = 1,
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
    """Kafka 4.1 on 127.0.0.1, ready to use: one broker, or three, which are their own controllers (KRaft).

    Three brokers are on 127.0.0.1 to 127.0.0.3, and keep what is written on two of them at least. `partitions` is the
    number that topics get that are made by their first message; `create_topic` takes its own. `settings` are keys of
    server.properties. The other options are those of `cassandra`.
    """
    options = KafkaOptions(
        brokers=brokers,
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
        docker=lambda: kafka_docker.start(options, tell),
        local=lambda: kafka_local.start(options, tell),
        can_be_run=lambda: kafka_docker.can_be_run(options),
    )


def zookeeper(
    *,
    settings: Mapping[str, object] | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    java_options: Sequence[str] = (),
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> ZooKeeperCluster:
    """ZooKeeper 3.9 on 127.0.0.1, ready to use: one server, from the jars that pyspark has.

    `settings` are lines of zoo.cfg. The other options are those of `cassandra`.
    """
    options = ZooKeeperOptions(
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        java_options=tuple(java_options),
        timeout=timeout,
    )
    return _by_route(
        routes.ZOOKEEPER,
        options,
        own=own,
        given=lambda: zookeeper_given.connect(routes.endpoint(routes.ZOOKEEPER, routes.ZOOKEEPER_PORT)),
        docker=None,
        local=lambda: zookeeper_local.start(options, tell),
    )


def postgres(
    *,
    password: str | None = None,
    settings: Mapping[str, object] | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> PostgresServer:
    """PostgreSQL on 127.0.0.1, ready to use, with an empty database: the installed one, else 17.

    Its superuser `epochal` needs a `password` only if one is set here. `settings` are those of postgresql.conf, with
    files (a certificate, its key) as `Path`; `fsync` is on. The other options are those of `cassandra`. A server that
    the user runs is ``EPOCHAL_POSTGRES=host:port/database``, with `EPOCHAL_POSTGRES_USER` and
    `EPOCHAL_POSTGRES_PASSWORD`.
    """
    options = PostgresOptions(
        password=password,
        settings=dict(settings or {}),
        folder=Path(folder) if folder is not None else None,
        port=port,
        timeout=timeout,
    )
    return _by_route(
        routes.POSTGRES,
        options,
        own=own,
        given=postgres_given.connect,
        docker=lambda: postgres_docker.start(options, tell),
        local=lambda: postgres_local.start(options, tell),
    )


def s3(
    *,
    bucket: str = "epochal",
    server: str | None = None,
    folder: str | PathLike[str] | None = None,
    port: int | None = None,
    own: bool = False,
    timeout: float = 120.0,
    tell: Callable[[str], None] | None = None,
) -> S3Store:
    """An object store that speaks S3's protocol on 127.0.0.1, ready to use, with an empty bucket.

    By default it is moto's server, which enforces conditions, one request at a time, and keeps its data in memory: a
    restart empties it. `server="versitygw"` enforces them under concurrency, and keeps its data in files; Go's tool
    chain builds it once. The other options are those of `cassandra`. A store that the user runs is
    ``EPOCHAL_S3=http://host:port/bucket``, with credentials as clients read them (``AWS_ACCESS_KEY_ID``, ...).
    """
    options = S3Options(
        bucket=bucket,
        server=server,
        folder=Path(folder) if folder is not None else None,
        port=port,
        timeout=timeout,
    )
    return _by_route(
        routes.S3,
        options,
        own=own,
        given=s3_given.connect,
        docker=None,
        local=lambda: s3_local.start(options, tell),
    )


def _by_route(
    variable: str,
    options: ServerOptions,
    *,
    own: bool,
    given: Callable[[], Cluster],
    docker: Callable[[], Cluster] | None,
    local: Callable[[], Cluster],
    can_be_run: Callable[[], bool] = lambda: True,
) -> Cluster:
    """The servers, by the first route that applies; containers only where they can do what is asked."""

    def engine_answers() -> bool:
        # A container cannot keep its data in a local folder.
        return docker is not None and options.folder is None and containers.engine_answers() and can_be_run()

    match routes.choose(variable, own=own or options.needs_own_server, engine_answers=engine_answers):
        case Route.GIVEN:
            return given()
        case Route.LOCAL:
            return local()
        case Route.DOCKER if docker is not None:
            return docker()
    name = variable.removeprefix("EPOCHAL_").capitalize()
    raise ServerFailed(f"{name} is not run in containers; {routes.ROUTES}=local runs it as a process")
