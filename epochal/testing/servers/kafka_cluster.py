"""A Kafka cluster as tests use it: its address, its topics, its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epochal.testing.servers import kafka_topics
from epochal.testing.servers.cluster import OnOnePort
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.kafka_records import Record
from epochal.testing.servers.kafka_topics import Message
from epochal.testing.servers.kafka_wire import Code
from epochal.testing.servers.waiting import wait_until


class KafkaCluster(OnOnePort):
    """One broker or three, or those that the user runs. Leaving the block stops those that were started for it.

        with servers.kafka() as kafka:
            kafka.create_topic("orders", partitions=2)
            kafka.send("orders", ["first", "second"], partition=1)
            spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)

    The methods for topics are for tests: a connection for each call, no retries.
    """

    @property
    def bootstrap(self) -> str:
        """The value for ``kafka.bootstrap.servers``."""
        return self._address_list

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic; `settings` are those of Kafka's topics, such as ``retention.ms``."""
        kafka_topics.create(self._addresses, name, partitions, settings or {}, self._timeout, len(self.nodes))

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of that name."""
        return kafka_topics.describe(self._addresses, name).error == Code.NONE

    def wait_until_whole(self) -> None:
        """Wait until every broker knows all others; this takes a moment after one was restarted."""

        def whole() -> bool:
            try:
                return all(len(kafka_topics.brokers([one])) == len(self.nodes) for one in self._addresses)
            except (OSError, ServerFailed):
                return False

        wait_until(whole, self._timeout, lambda: "the brokers do not know each other:\n" + self.nodes[0].log_tail())

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
