"""Transactions: one producer of this process for each transactional id, and who has shut it out.

A producer that fails is given up. The next one for its id ends whatever is left of its transaction before it begins: a
transaction that was being committed is committed, any other one is rolled back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from epochal.sinks.kafka.cluster.clients import Cluster
from epochal.sinks.kafka.cluster.endpoint import Endpoint
from epochal.sinks.kafka.cluster.faults import error_of

ANSWER = 20.0  # seconds for an answer of the coordinator
DELIVERY = 30.0  # seconds until a message that no broker takes fails its transaction
IN_MEMORY = 100_000  # messages that wait for their acknowledgement
SHUT_OUT = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class ShutOut(Exception):
    """Another process has begun to use the transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How messages are sent."""

    timeout: float  # of a transaction, in seconds
    compression: str = "none"
    max_bytes: int = 1_000_000  # of a batch


class Transactional:
    """A producer with a transactional id. One thread uses it at a time."""

    def __init__(self, cluster: Cluster, name: str, sending: Sending) -> None:
        self.cluster, self.sending = cluster, sending
        self._began = 0.0
        self.marked = 0  # the offset after the last mark that a broker has taken
        most = min(sending.max_bytes, 1_000_000)
        settings: dict[str, Any] = {
            **cluster.endpoint.settings(),
            "error_cb": self._note,
            "transactional.id": name,
            "transaction.timeout.ms": int(sending.timeout * 1000),
            "message.timeout.ms": int(min(DELIVERY, sending.timeout) * 1000),
            "compression.type": sending.compression,
            # As Kafka's own clients, and so Spark's sink, choose the partition of a key.
            "partitioner": "murmur2_random",
            "message.max.bytes": max(1000, min(sending.max_bytes, 1_000_000_000)),
            "batch.size": max(1, most),
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * IN_MEMORY,
            "queue.buffering.max.kbytes": 2_147_483_647,  # `IN_MEMORY` and the size of a staged batch are the limit
        }
        self.producer: Producer = Producer(settings)
        try:
            # Without a connection the client asks for the coordinator again half a second later.
            with self.errors("connect"):
                self.producer.list_topics(timeout=ANSWER)
            self._until_done(self.producer.init_transactions, "begin to use the transactional id")
        except BaseException:
            self.give_up()
            raise

    @property
    def ran_out(self) -> bool:
        """Whether the brokers may have rolled back the open transaction because it took too long."""
        return bool(self._began) and time.monotonic() - self._began > 0.9 * self.sending.timeout

    def begin(self) -> None:
        with self.errors("begin a transaction"):
            self.producer.begin_transaction()
        self._began = time.monotonic()

    def make_room(self) -> None:
        """Wait until not too many messages are in memory."""
        with self.errors("send messages"):
            self.producer.poll(0)
            while len(self.producer) > IN_MEMORY:
                self.producer.poll(0.05)

    def flush(self) -> None:
        """Wait until every message is acknowledged, or has failed the transaction."""
        with self.errors("send messages"):
            while self.producer.flush(1.0):
                pass

    def mark(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a message to epochal's own topic, with the messages that it vouches for."""
        self.producer.produce(topic, value=value, key=key, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.marked = (message.offset() or 0) + 1

    def commit(self) -> None:
        """Commit the transaction. If this raises, it may be committed or not: a new producer brings that to an end."""
        self._until_done(self.producer.commit_transaction, "commit the transaction")
        self._began = 0.0

    def give_up(self) -> None:
        """Roll back an open transaction if that can be done at once, and forget what was not sent."""
        try:
            if self._began:
                self.producer.abort_transaction(2.0)
            self.producer.purge()
        except KafkaException:
            pass  # it was shut out, or has no connection: the next producer for this id does it

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as fault:
            self._raise(fault, what)

    def _until_done(self, call: Any, what: str) -> None:
        """Ask again until there is an answer: the coordinator may be moving, or end what was open before."""
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                call(max(0.1, deadline - time.monotonic()))
            except KafkaException as fault:
                error = error_of(fault)
                if error is None or not error.retriable() or time.monotonic() > deadline:
                    self._raise(fault, what)
                time.sleep(0.05)
            else:
                return

    def _raise(self, fault: Exception, what: str) -> None:
        error = error_of(fault)
        if error is not None and error.name() in SHUT_OUT and not self.ran_out:
            raise ShutOut(what) from fault
        raise self.cluster.translated(fault, what) from None

    def _note(self, error: KafkaError) -> None:
        self.cluster.last = error


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock
    producer: Transactional | None = None
    timeout: float = 0.0  # longer than what was asked for, if that was too short once


_slots: dict[tuple[int, Endpoint, str], _Slot] = {}
_lock = threading.Lock()


class Transactions:
    """The right of this process to use a transactional id, for the duration of a block: ``with held(...) as id:``."""

    def __init__(self, cluster: Cluster, name: str, slot: _Slot) -> None:
        self._cluster, self._name, self._slot = cluster, name, slot

    def producer(self, sending: Sending) -> tuple[Transactional, bool]:
        """The producer, and whether it is new: then nothing that others sent with this id is open any more."""
        wanted = replace(sending, timeout=max(sending.timeout, self._slot.timeout))
        found = self._slot.producer
        if found is not None and found.sending == wanted:
            return found, False
        self.drop()
        self._slot.producer = Transactional(self._cluster, self._name, wanted)
        return self._slot.producer, True

    def drop(self) -> None:
        """Give the producer up, if there is one; allow the next one more time if that is what it lacked."""
        found, self._slot.producer = self._slot.producer, None
        if found is None:
            return
        if found.ran_out:
            longest = self._cluster.longest_transaction() or found.sending.timeout
            self._slot.timeout = max(found.sending.timeout, min(2 * found.sending.timeout, longest))
        found.give_up()


@contextmanager
def held(cluster: Cluster, name: str) -> Iterator[Transactions]:
    """Use a transactional id; other threads of this process wait meanwhile."""
    with _lock:
        slot = _slots.setdefault((os.getpid(), cluster.endpoint, name), _Slot(threading.Lock()))
    with slot.lock:
        yield Transactions(cluster, name, slot)
