"""Kafka in a container: one broker.

It listens on its published port inside too, and tells clients 127.0.0.1 with that port: a client that asks it for the
leaders finds it. The image must have Kafka's own scripts in /opt/kafka/bin, as the official one does; its entry point
and its settings are not used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from epochal.testing.servers import containers, kafka_java, kafka_local, kafka_properties
from epochal.testing.servers.containers import FILES, ContainerNode, Containers, Image
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.kafka_cluster import KafkaCluster
from epochal.testing.servers.options import KafkaOptions
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.routes import KAFKA_IMAGE, ROUTES, Route

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = Image("apache/kafka:4.1.0", KAFKA_IMAGE)
HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # inside the container; outside it is published on loopback
HOME = PurePosixPath("/tmp/epochal")  # writable in every image
BIN = PurePosixPath("/opt/kafka/bin")
CONTROLLER_PORT = 9093
PROPERTIES = f"{FILES}/server.properties"


def start(options: KafkaOptions, tell: Callable[[str], None] | None) -> KafkaCluster:
    """Start the broker. It formats its folder at its first start."""
    made = Containers(IMAGE, options)
    try:
        if not can_be_run(options):
            what = "three brokers" if options.brokers > 1 else "listeners of one's own, and engines elsewhere,"
            raise ServerFailed(f"Kafka: {what} are not run in containers; {ROUTES}=local runs processes")
        port = options.port or free_port([HOST])
        container = _configured(made.container(entrypoint=["sh", "-c", script()]), port, options)
        containers.publish(container, HOST, port)
        node = KafkaNode(container, port, timeout=options.timeout)
        cluster = KafkaCluster([node], port, route=Route.DOCKER, end=made.end, timeout=options.timeout)
        if tell:
            tell(f"starting {HOST}:{port} in a container of {IMAGE.name}")
        made.launch(container)
        node.wait_until_ready()
        cluster.wait_until_whole()
    except BaseException:
        made.end()
        raise
    return cluster


def can_be_run(options: KafkaOptions) -> bool:
    """Whether one container can be what is asked for: its clients are sent to 127.0.0.1, at one port."""
    return options.brokers == 1 and "listeners" not in options.settings and containers.elsewhere() is None


class KafkaNode(ContainerNode):
    """The broker as a container."""

    def __init__(self, container: DockerContainer, port: int, *, timeout: float) -> None:
        super().__init__(container, f"Kafka on {HOST}:{port}", HOST, timeout=timeout)
        self._port = port

    def answers(self) -> bool:
        return kafka_local.answers(HOST, self._port)


def script() -> str:
    """What the container runs at each start."""
    storage = [str(BIN / "kafka-storage.sh"), *kafka_java.format_arguments(kafka_local.new_id(), Path(PROPERTIES))]
    steps = [
        f"mkdir -p {HOME}",
        f"export LOG_DIR={HOME}/logs",
        f"[ -e {HOME}/data/meta.properties ] || {shlex.join(storage)} || exit",
        f"exec {BIN}/kafka-server-start.sh {PROPERTIES}",
    ]
    return "\n".join(steps)


def _configured(container: DockerContainer, port: int, options: KafkaOptions) -> DockerContainer:
    files: dict[Path, str] = {}
    given = containers.carried(options.settings, files)
    values = kafka_properties.settings(HOME, HOST, port, CONTROLLER_PORT, options.partitions, given, listen=EVERYWHERE)
    container.with_copy_into_container(kafka_properties.text(values).encode(), PROPERTIES)
    containers.copy_into(container, files)
    container.with_env("KAFKA_HEAP_OPTS", "-Xms64m -Xmx256m")
    return container.with_env("KAFKA_OPTS", " ".join(("-XX:TieredStopAtLevel=1", *options.java_options)))
