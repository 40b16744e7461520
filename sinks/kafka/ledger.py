"""Reads epochal's own topic: what is committed in it, and no more.

Readers of committed messages see a topic up to its *stable end*, where the oldest open transaction begins. So a mark
may be committed and not be readable yet, because of another stream's transaction. If one of ours may be among those, we
wait; unless the open transaction is our own, which a driver has left behind, or is about to end: then nothing of ours
after it can be committed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from epochal.participant import Refused, StoreAway
from epochal.sinks.kafka.cluster.clients import TIMEOUT, Cluster
from epochal.sinks.kafka.cluster.endpoint import Endpoint
from epochal.sinks.kafka.layout import CLAIMS, EPOCH, PART, SETTINGS, lanes_key
from epochal.sinks.kafka.ledger_state import LedgerState, key_of, lanes_from

log = logging.getLogger("epochal")

PATIENCE = 10.0  # seconds to wait for another stream's transaction
AT_ONCE = 1000  # messages


class Ledger:
    """What this process has read of the topic. Its state grows with the topic; it is read from the beginning once."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._lock = threading.RLock()
        self._consumer: Consumer | None = None
        self._identity = ""
        self._position = 0
        self._committed = 0  # what is before this offset is committed, if it is this process's
        self._state = LedgerState()
        self._has_foreign = False  # whether messages of other programs were seen

    def read(self, target: str, lineage: str, lane: int | None = None) -> LedgerState:
        """What is committed, of a target and a stream at least. The state of an empty topic if there is none.

        Of parts only those of a lane, for whoever holds it, are sure to be all there.
        """
        deadline = time.monotonic() + PATIENCE
        with self._lock:
            self._look_for_another_topic()
            while True:
                end = self._end(committed=False)
                stable = self._end(committed=True)
                if end < self._position:
                    self._begin_again()  # it was emptied
                    self._committed = 0
                self._read_to(stable)
                if stable >= end:
                    return self._state
                if stable >= self._committed and self._is_whole(stable, end, target, lineage, lane):
                    return self._state
                if time.monotonic() > deadline:
                    raise StoreAway(
                        f"topic {self._topic!r}: a transaction of another stream has been open for {PATIENCE:.0f} s. "
                        "It ends when that stream starts again, or by its transaction_timeout"
                    )
                time.sleep(0.05)

    def lanes(self, target: str, lineage: str) -> int:
        """How many lanes a stream may have used. It counts what may be rolled back, so it waits for nobody."""
        with self._lock:
            self._look_for_another_topic()
            end, stable = self._end(committed=False), self._end(committed=True)
            self._read_to(stable)
            behind = self._behind(stable, end) if stable < end else []
            key = lanes_key(target, lineage)
            open_ones = [lanes_from(_bytes(message.value())) for message in behind if _bytes(message.key()) == key]
            return max([self._state.lanes.get((target, lineage), 0), *open_ones])

    def committed(self, end: int) -> None:
        """This process has committed what it has sent before an offset. Brokers may still show it as open."""
        with self._lock:
            self._committed = max(self._committed, end)

    def create(self) -> None:
        """Create the topic; no error if it exists. Refused if it would lose marks."""
        found = self._cluster.find([self._topic])
        if not found:
            self._cluster.create(self._topic, SETTINGS)
            found = self._cluster.find([self._topic])
        topic = found.get(self._topic)
        if topic is not None and (topic.partitions != 1 or not topic.compacted or topic.deletes):
            raise Refused(
                f"topic {self._topic!r}: epochal records there which epochs are committed. It must have one partition "
                "and cleanup.policy=compact. Nothing was written. Change it, or name another one with ledger_topic="
            )
        if topic is not None and not topic.writable:
            raise Refused(
                f"topic {self._topic!r}: this user may not write to it, and epochal records there which epochs are "
                "committed. Nothing was written. Allow it to Describe, Read and Write"
            )

    def _look_for_another_topic(self) -> None:
        identity = self._cluster.identities([self._topic]).get(self._topic, "")
        if identity != self._identity:
            self._identity = identity
            self._begin_again()
            self._committed = 0

    def _begin_again(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._position, self._state = None, 0, LedgerState()

    def _end(self, *, committed: bool) -> int:
        return self._cluster.ends([(self._topic, 0)], committed=committed).get((self._topic, 0), 0)

    def _read_to(self, end: int) -> None:
        """Take in what is committed before an offset, and perhaps after it."""
        if self._position >= end:
            return
        if self._consumer is None:
            self._consumer = self._reader(self._position, committed=True)

        def take(message: Message) -> None:
            where = f"topic {self._topic!r}, offset {message.offset()}"
            if not self._state.apply(_bytes(message.key()), _bytes(message.value()), where) and not self._has_foreign:
                self._has_foreign = True
                log.warning(
                    "another program writes to epochal's own topic; its messages are passed over",
                    extra={"topic": self._topic, "offset": message.offset()},
                )

        try:
            self._position = self._consume(self._consumer, self._position, end, take)
        except BaseException:
            self._begin_again()  # some messages may be taken in and some not
            raise

    def _is_whole(self, stable: int, end: int, target: str, lineage: str, lane: int | None) -> bool:
        """Whether nothing of ours can be committed behind the open transaction that begins at the stable end."""
        messages = [key_of(_bytes(message.key())) for message in self._behind(stable, end)]
        ours = [
            (kind, parts)
            for kind, parts in filter(None, messages)
            if parts[0] == target and (kind == CLAIMS or parts[1] == lineage)
        ]
        if lane is not None:
            return all(kind == PART and parts[2] != lane for kind, parts in ours)
        kinds = [kind for kind, _ in ours if kind != PART]
        if not kinds:
            return True
        if messages[0] in ours and messages[0][0] == PART:
            # One part of an epoch is open: so neither the epoch nor one after it can be committed.
            return {*kinds} == {EPOCH}
        # An id has one transaction at a time, and each has one message here: all of ours are of the open one.
        return messages[0] in ours and len({*kinds}) == 1

    def _behind(self, stable: int, end: int) -> list[Message]:
        """What is behind the stable end, be it committed or not."""
        found: list[Message] = []
        reader = self._reader(stable, committed=False)
        try:
            self._consume(reader, stable, end, found.append)
        finally:
            reader.close()
        return found

    def _reader(self, position: int, *, committed: bool) -> Consumer:
        settings: dict[str, Any] = {
            **self._cluster.endpoint.settings(),
            "group.id": "epochal",  # the client wants one; no offsets are committed
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,  # a broker does not always notice that the stable end has moved on
            "fetch.error.backoff.ms": 20,
        }
        consumer = Consumer(settings)
        try:
            consumer.list_topics(self._topic, timeout=TIMEOUT)  # without it the first message comes half a second later
        except KafkaException as fault:
            consumer.close()
            raise self._cluster.translated(fault, f"topic {self._topic!r}") from None
        consumer.assign([TopicPartition(self._topic, 0, position or OFFSET_BEGINNING)])
        return consumer

    def _consume(self, consumer: Consumer, position: int, end: int, take: Callable[[Message], None]) -> int:
        """Read up to an offset at least. Returns the offset that is next: ends of transactions have offsets too."""
        deadline = time.monotonic() + TIMEOUT
        while position < end:
            for message in some(consumer):
                fault = message.error()
                if fault is None:
                    take(message)
                    position = max(position, (message.offset() or 0) + 1)
                elif fault.name() == "_PARTITION_EOF":
                    position = max(position, message.offset() or 0)
                elif not fault.retriable() and fault.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                    raise self._cluster.translated(fault, f"topic {self._topic!r}")
            if time.monotonic() > deadline:
                raise StoreAway(f"topic {self._topic!r}: not read to its end within {TIMEOUT:.0f} s")
        return position


def some(consumer: Consumer) -> list[Message]:
    """What is there, after waiting a second for the first: `consume` alone would wait for as many as it may return."""
    first = consumer.poll(1.0)
    return [] if first is None else [first, *consumer.consume(AT_ONCE, timeout=0)]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


_ledgers: dict[tuple[int, Endpoint, str], Ledger] = {}
_lock = threading.Lock()


def ledger(cluster: Cluster, topic: str) -> Ledger:
    """The ledger as this process has read it so far."""
    with _lock:
        key = (os.getpid(), cluster.endpoint, topic)
        if key not in _ledgers:
            _ledgers[key] = Ledger(cluster, topic)
        return _ledgers[key]
