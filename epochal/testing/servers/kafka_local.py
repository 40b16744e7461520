"""Kafka as a local process on 127.0.0.1: one broker that is its own controller."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
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
    """Format the folder unless it was used before, and start the broker."""
    java = find_java("Kafka", kafka_java.GOOD)
    found = jars(KAFKA, java, tell)
    supervisor = Supervisor(options.folder)
    try:
        home = supervisor.folder / "broker"
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        port, controller_port = _ports(supervisor.folder, options.port)
        values = kafka_properties.settings(home, HOST, port, controller_port, options.partitions, options.settings)
        file = home / "server.properties"
        file.write_text(kafka_properties.text(values))

        def process(main: str, *arguments: str) -> Broker:
            command = kafka_java.command(java, found, home, options.java_options, main, *arguments)
            made = Broker(supervisor, f"Kafka on {HOST}:{port}", command, home, home / "log", timeout=options.timeout)
            made.port = port
            return made

        broker = process(kafka_java.BROKER, str(file))
        end = partial(end_all, supervisor, [broker], in_order=options.folder is not None)
        cluster = KafkaCluster([broker], port, route=Route.LOCAL, end=end, timeout=options.timeout)
        if not (home / "data" / "meta.properties").exists():
            process(kafka_java.STORAGE, *kafka_java.format_arguments(_new_id(), file)).run_to_end()
        if tell:
            tell(f"starting {cluster.bootstrap}")
        broker.start()
    except BaseException:
        supervisor.end()
        raise
    return cluster


class Broker(LocalProcess):
    """The broker as a process of the supervisor."""

    port = 0

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: answers(HOST, self.port))


def answers(host: str, port: int) -> bool:
    """Whether a broker answers, and has registered itself."""
    try:
        return bool(kafka_topics.brokers([(host, port)]))
    except (OSError, ServerFailed):
        return False


def _new_id() -> str:
    """An id for a cluster, as Kafka writes it."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _ports(folder: Path, wanted: int | None) -> tuple[int, int]:
    """Ports for clients and for the controller. A folder that was used before keeps them."""
    known = recall(folder)
    port = wanted or (known["port"] if known else free_port([HOST]))
    controller_port = known["controller_port"] if known else free_port([HOST], [port])
    remember(folder, {"port": port, "controller_port": controller_port}, [(HOST, port), (HOST, controller_port)])
    return port, controller_port
