"""``epochal serve``: real servers on loopback, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from epochal.cli.exit_codes import INTERRUPTED
from epochal.cli.text import counted, key_values, paint, print_json_error
from epochal.testing import servers
from epochal.testing.servers import (
    CassandraCluster,
    HdfsCluster,
    KafkaCluster,
    Node,
    PostgresServer,
    S3Store,
    ZooKeeperCluster,
)
from epochal.testing.servers.ports import is_free, recall
from epochal.testing.servers.routes import CASSANDRA_PORT, KAFKA_PORT, POSTGRES_PORT, S3_PORT, ZOOKEEPER_PORT

FAILED = 1
INTERVAL = 1.0  # seconds between two checks of the nodes

Cluster = TypeVar("Cluster", CassandraCluster, HdfsCluster, KafkaCluster, PostgresServer, S3Store, ZooKeeperCluster)


def cassandra(*, nodes: int, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve Cassandra until Ctrl-C or SIGTERM."""

    def start() -> CassandraCluster:
        _print_progress(f"Cassandra with {counted(nodes, 'node')}")
        chosen = port or _usual_port(CASSANDRA_PORT, nodes, folder)
        return servers.cassandra(nodes, folder=folder, port=chosen, own=True, tell=_print_progress)

    return _serve(start, (_answer if as_json else _how_to_connect), as_json=as_json)


def hdfs(*, datanodes: int, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve HDFS until Ctrl-C or SIGTERM."""

    def start() -> HdfsCluster:
        _print_progress(f"HDFS with {counted(datanodes, 'DataNode')}")
        return servers.hdfs(datanodes, folder=folder, port=port, own=True, tell=_print_progress)

    return _serve(start, (_hdfs_answer if as_json else _how_to_use_hdfs), as_json=as_json)


def kafka(
    *,
    brokers: int,
    partitions: int,
    topics: Sequence[tuple[str, int]],
    port: int | None,
    folder: str | None,
    as_json: bool,
) -> int:
    """Serve Kafka until Ctrl-C or SIGTERM, with some topics."""

    def start() -> KafkaCluster:
        _print_progress(f"Kafka with {'one broker' if brokers == 1 else f'{brokers} brokers'}")
        chosen = port or _usual_port(KAFKA_PORT, brokers, folder)
        return servers.kafka(
            brokers=brokers, partitions=partitions, folder=folder, port=chosen, own=True, tell=_print_progress
        )

    def make_topics(cluster: KafkaCluster) -> None:
        for name, number in topics:
            if cluster.has_topic(name):
                _print_progress(f"topic {name!r} is there already")
                continue
            cluster.create_topic(name, number)
            _print_progress(f"topic {name!r} with {counted(number, 'partition')}")

    return _serve(start, (_kafka_answer if as_json else _how_to_use_kafka), make_topics, as_json=as_json)


def zookeeper(*, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve ZooKeeper until Ctrl-C or SIGTERM."""

    def start() -> ZooKeeperCluster:
        _print_progress("ZooKeeper")
        chosen = port or _usual_port(ZOOKEEPER_PORT, 1, folder)
        return servers.zookeeper(folder=folder, port=chosen, own=True, tell=_print_progress)

    return _serve(start, (_zookeeper_answer if as_json else _how_to_use_zookeeper), as_json=as_json)


def postgres(*, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve PostgreSQL until Ctrl-C or SIGTERM."""

    def start() -> PostgresServer:
        _print_progress("PostgreSQL")
        chosen = port or _usual_port(POSTGRES_PORT, 1, folder)
        return servers.postgres(folder=folder, port=chosen, own=True, tell=_print_progress)

    return _serve(start, (_postgres_answer if as_json else _how_to_use_postgres), as_json=as_json)


def s3(*, bucket: str, program: str, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve an object store until Ctrl-C or SIGTERM."""

    def start() -> S3Store:
        _print_progress(f"an object store that speaks S3's protocol, by {program}")
        chosen = port or _usual_port(S3_PORT, 1, folder)
        return servers.s3(bucket=bucket, server=program, folder=folder, port=chosen, own=True, tell=_print_progress)

    return _serve(start, (_s3_answer if as_json else _how_to_use_s3), as_json=as_json)


def _serve(
    start: Callable[[], Cluster],
    describe: Callable[[Cluster], str],
    prepare: Callable[[Cluster], None] = lambda _: None,
    *,
    as_json: bool,
) -> int:
    """Serve until Ctrl-C or SIGTERM: 0; 1 if a server did not start or died; 130 if interrupted before it was ready."""
    # Ctrl-C and the SIGTERM of a supervisor mean the same: stop everything in order. SIGINT is set too,
    # because a shell starts background jobs with it ignored.
    signals = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    ready = False
    try:
        started = time.monotonic()
        with start() as cluster:
            prepare(cluster)
            _print_progress(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C ends it")
            print(describe(cluster), flush=True)
            ready = True
            _watch(cluster.nodes)
    except servers.ServerFailed as fault:
        if as_json:
            print_json_error(fault, FAILED)
        else:
            _print_progress(paint(str(fault), "red", sys.stderr))
        return FAILED
    except KeyboardInterrupt:
        _print_progress("stopped")
        return 0 if ready else INTERRUPTED
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _usual_port(usual: int, nodes: int, folder: str | None) -> int | None:
    """The server's default port, if it is free and the folder has no port of its own yet."""
    known = folder is not None and recall(Path(folder)) is not None
    free = all(is_free(f"127.0.0.{number + 1}", usual) for number in range(nodes))
    return usual if free and not known else None


def _watch(nodes: Sequence[Node]) -> None:
    while all(node.running for node in nodes):
        time.sleep(INTERVAL)
    gone = next(node for node in nodes if not node.running)
    raise servers.ServerFailed(f"{gone.name} has ended:\n{gone.log_tail()}")


def _answer(cluster: CassandraCluster) -> str:
    nodes = [{"host": node.host, "pid": node.pid} for node in cluster.nodes]
    return json.dumps(
        {"hosts": [*cluster.hosts], "port": cluster.port, "route": str(cluster.route), "nodes": nodes},
    )


def _hdfs_answer(cluster: HdfsCluster) -> str:
    nodes = [{"name": node.name, "pid": node.pid} for node in cluster.nodes]
    settings = dict(cluster.settings)
    return json.dumps(
        {"uri": cluster.uri, "web": cluster.web, "route": str(cluster.route), "settings": settings, "nodes": nodes}
    )


def _kafka_answer(cluster: KafkaCluster) -> str:
    nodes = [{"host": node.host, "pid": node.pid} for node in cluster.nodes]
    return json.dumps(
        {"bootstrap": cluster.bootstrap, "port": cluster.port, "route": str(cluster.route), "nodes": nodes}
    )


def _zookeeper_answer(cluster: ZooKeeperCluster) -> str:
    nodes = [{"host": node.host, "pid": node.pid} for node in cluster.nodes]
    return json.dumps({"connect": cluster.connect, "port": cluster.port, "route": str(cluster.route), "nodes": nodes})


def _postgres_answer(server: PostgresServer) -> str:
    nodes = [{"host": node.host, "pid": node.pid} for node in server.nodes]
    return json.dumps({**server.options, "route": str(server.route), "nodes": nodes})


def _s3_answer(store: S3Store) -> str:
    nodes = [{"host": node.host, "pid": node.pid} for node in store.nodes]
    told = {"endpoint": store.endpoint, "url": store.url, "route": str(store.route), "environment": store.environment}
    return json.dumps({**told, "nodes": nodes})


def _how_to_use_s3(store: S3Store) -> str:
    variables = " ".join(f"{name}={value}" for name, value in store.environment.items())
    shown = [
        ("bucket", store.url),
        ("endpoint", store.endpoint),
        ("environment", f"export {variables}"),
        ("in Python", f'EpochWriter(..., journal="{store.url}/journals/orders")'),
        ("for tests", f"export EPOCHAL_S3={store.endpoint}/{store.bucket}"),
    ]
    return key_values(shown)


def _how_to_use_postgres(server: PostgresServer) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in server.options.items())
    shown = [
        ("address", server.address),
        ("user", server.user),
        ("in Python", f'PostgresSink("orders", {options})'),
        ("for commands", f"export EPOCHAL_POSTGRES_USER={server.user}"),
        ("on the shell", f"psql '{server.dsn}'"),
        ("for tests", f"export EPOCHAL_POSTGRES={server.address}"),
    ]
    return key_values(shown)


def _how_to_use_zookeeper(cluster: ZooKeeperCluster) -> str:
    shown = [
        ("connect string", cluster.connect),
        ("in Python", f'epochal.standby(writer, stream, zookeeper="{cluster.connect}")'),
        ("on the shell", f"epochal run orders.toml --standby --zookeeper {cluster.connect}"),
        ("for tests", f"export EPOCHAL_ZOOKEEPER={cluster.connect}"),
    ]
    return key_values(shown)


def _how_to_use_kafka(cluster: KafkaCluster) -> str:
    options = f'.option("kafka.bootstrap.servers", "{cluster.bootstrap}").option("subscribe", "orders")'
    shown = [
        ("bootstrap servers", cluster.bootstrap),
        ("in Python", 'spark = epochal.session("orders", kafka=True)'),
        ("as a source", f'spark.readStream.format("kafka"){options}.load()'),
        ("as a sink", f'KafkaSink("orders", bootstrap_servers={cluster.bootstrap.split(",")})'),
        ("for tests", f"export EPOCHAL_KAFKA={cluster.bootstrap}"),
    ]
    return key_values(shown)


def _how_to_use_hdfs(cluster: HdfsCluster) -> str:
    shown = [
        ("URI", cluster.uri),
        ("WebHDFS", cluster.web),
        ("in Python", f'RollingFileSink("{cluster.uri}/archive/orders")'),
        ("for Spark", " ".join(f"--conf {name}={value}" for name, value in cluster.settings.items())),
        ("for tests", f"export EPOCHAL_HDFS={cluster.uri} EPOCHAL_HDFS_WEB={cluster.web}"),
    ]
    return key_values(shown)


def _how_to_connect(cluster: CassandraCluster) -> str:
    hosts = ", ".join(f'"{host}"' for host in cluster.hosts)
    shown = [
        ("contact points", ", ".join(cluster.hosts)),
        ("port", str(cluster.port)),
        ("in Python", f'CassandraSink("shop.orders", contact_points=[{hosts}], port={cluster.port})'),
        ("for tests", f"export EPOCHAL_CASSANDRA={','.join(cluster.hosts)}:{cluster.port}"),
    ]
    return key_values(shown)


def _print_progress(text: str) -> None:
    print(f"epochal: {text}", file=sys.stderr, flush=True)
