"""A Kafka cluster as tests use it: its address, its topics, its one broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from epochal.testing.servers import kafka_topics
from epochal.testing.servers.cluster import Node, Served
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.kafka_records import Record
from epochal.testing.servers.kafka_topics import Message
from epochal.testing.servers.kafka_wire import Address
from epochal.testing.servers.routes import Route


class KafkaCluster(Served):
    """One broker, or those that the user runs. Leaving the block stops one that was started for it.

        with servers.kafka() as kafka:
            kafka.create_topic("orders", partitions=2)
            kafka.send("orders", ["first", "second"], partition=1)
            spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)

    The methods for topics are for tests: a connection for each call, no retries.
    """

    def __init__(
        self, nodes: Sequence[Node], port: int, *, route: Route, end: Callable[[], None], timeout: float = 120.0
    ) -> None:
        super().__init__(route, end, timeout)
        self.nodes = tuple(nodes)
        self.port = port

    @property
    def hosts(self) -> list[str]:
        """The addresses of the brokers."""
        return [node.host for node in self.nodes]

    @property
    def bootstrap(self) -> str:
        """The value for ``kafka.bootstrap.servers``."""
        return ",".join(f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}" for host in self.hosts)

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic; `settings` are those of Kafka's topics, such as ``retention.ms``."""
        kafka_topics.create(self._addresses, name, partitions, settings or {}, self._timeout)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        kafka_topics.delete(self._addresses, name, self._timeout)

    def send(
        self, topic: str, values: Sequence[Message | None], *, partition: int = 0, key: Message | None = None
    ) -> int:
        """Send messages to a partition as one batch. Returns the offset of the first.

        The broker has them when this returns. If it raises, the broker may have them or not.
        """
        if not values:
            raise ServerFailed(f"nothing to send to {topic!r}: `values` is empty")
        return kafka_topics.send(self._addresses, topic, [(key, value) for value in values], partition)

    def read(self, topic: str) -> list[Record]:
        """Every message that a topic holds, in order of partition and offset."""
        return kafka_topics.read(self._addresses, topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset of the next message of each partition."""
        return kafka_topics.offsets(self._addresses, topic, kafka_topics.LATEST)

    @property
    def _addresses(self) -> list[Address]:
        return [(host, self.port) for host in self.hosts]
