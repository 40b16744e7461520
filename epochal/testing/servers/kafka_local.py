"""Kafka as local processes: one broker, or three, which are their own controllers."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from epochal.testing.servers import kafka_java, kafka_properties, kafka_topics
from epochal.testing.servers.artifacts import KAFKA, jars
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.java import find_java
from epochal.testing.servers.kafka_cluster import KafkaCluster
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.options import KafkaOptions
from epochal.testing.servers.ports import free_port, recall, remember
from epochal.testing.servers.routes import Route
from epochal.testing.servers.supervisor import Supervisor

HOST = "127.0.0.1"


def start(options: KafkaOptions, tell: Callable[[str], None] | None) -> KafkaCluster:
    """Format the folders unless they were used before, and start the brokers."""
    java = find_java("Kafka", kafka_java.GOOD)
    found = jars(KAFKA, java, tell)
    supervisor = Supervisor(options.folder)
    try:
        hosts = [f"127.0.0.{number + 1}" for number in range(options.brokers)]
        port, controller_port = _ports(supervisor.folder, options.port, hosts)
        cluster_id = new_id()
        brokers: list[Broker] = []
        for number, host in enumerate(hosts, 1):
            home = supervisor.folder / ("broker" if number == 1 else f"broker{number}")
            (home / "tmp").mkdir(parents=True, exist_ok=True)
            values = kafka_properties.settings(
                home, host, port, controller_port, options.partitions, options.settings, hosts=hosts
            )
            file = home / "server.properties"
            file.write_text(kafka_properties.text(values))

            def process(main: str, *arguments: str, home: Path = home, host: str = host) -> Broker:
                command = kafka_java.command(java, found, home, options.java_options, main, *arguments)
                name, log = f"Kafka on {host}:{port}", home / "log"
                made = Broker(supervisor, name, command, home, log, timeout=options.timeout)
                made.host, made.port = host, port
                return made

            if not (home / "data" / "meta.properties").exists():
                process(kafka_java.STORAGE, *kafka_java.format_arguments(cluster_id, file)).run_to_end()
            brokers.append(process(kafka_java.BROKER, str(file)))
        end = partial(end_all, supervisor, brokers, in_order=options.folder is not None)
        cluster = KafkaCluster(brokers, port, route=Route.LOCAL, end=end, timeout=options.timeout)
        if tell:
            tell(f"starting {cluster.bootstrap}")
        for broker in brokers:  # none is ready before most of them run
            broker.launch()
        for broker in brokers:
            broker.wait_until_ready()
        cluster.wait_until_whole()
    except BaseException:
        supervisor.end()
        raise
    return cluster


class Broker(LocalProcess):
    """The broker as a process of the supervisor."""

    host, port = HOST, 0

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: answers(self.host, self.port))


def answers(host: str, port: int) -> bool:
    """Whether a broker answers, and has registered itself."""
    try:
        return bool(kafka_topics.brokers([(host, port)]))
    except (OSError, ServerFailed):
        return False


def new_id() -> str:
    """An id for a cluster, as Kafka writes it."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _ports(folder: Path, wanted: int | None, hosts: Sequence[str] = (HOST,)) -> tuple[int, int]:
    """Ports for clients and for controllers, the same on all hosts. A folder that was used before keeps them."""
    known = recall(folder)
    if known is not None and known.get("brokers", 1) != len(hosts):
        raise ServerFailed(f"{folder} holds a cluster with brokers={known.get('brokers', 1)}, not {len(hosts)}")
    port = wanted or (known["port"] if known else free_port(hosts))
    controller_port = known["controller_port"] if known else free_port(hosts, [port])
    addresses = [(host, number) for host in hosts for number in (port, controller_port)]
    remember(folder, {"brokers": len(hosts), "port": port, "controller_port": controller_port}, addresses)
    return port, controller_port
