"""Topics: made, deleted, filled and read, with `kafka_wire`. For tests and examples, not for speed."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from epochal.testing.servers import kafka_records
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.kafka_records import Record
from epochal.testing.servers.kafka_wire import (
    NULL,
    Address,
    Answer,
    Api,
    Code,
    Item,
    KafkaRefused,
    ask,
    ask_any,
    data,
    items,
    text,
)
from epochal.testing.servers.waiting import wait_until

ALL_REPLICAS = -1
EARLIEST, LATEST = -2, -1  # instead of a time
WAIT_MS = 10_000
MAX_BYTES = 8 * 1024 * 1024
Message = bytes | str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers describe it."""

    error: int
    leaders: Mapping[int, Address | None]  # None: a partition has no leader now

    @property
    def ready(self) -> bool:
        return self.error == Code.NONE and bool(self.leaders) and all(self.leaders.values())


def brokers(addresses: Sequence[Address]) -> dict[int, Address]:
    """The brokers of the cluster; empty while it starts."""
    return _metadata(addresses, [])[0]


def describe(addresses: Sequence[Address], name: str) -> Topic:
    """The partitions of a topic and their leaders. Does not make the topic."""
    return _metadata(addresses, [name])[1][name]


def create(
    addresses: Sequence[Address],
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    timeout: float,
    replicas: int = 1,
) -> None:
    """Make a topic, and wait until each partition can be used. Raises `KafkaRefused` if it exists."""
    configs = items(*(text(key) + text(value) for key, value in settings.items()))
    topic = text(name) + struct.pack(">ih", partitions, replicas) + items() + configs
    answer = ask_any(addresses, Api.CREATE_TOPICS, items(topic) + struct.pack(">i?", WAIT_MS, False))
    answer.number("i")
    for _, code, message in answer.items(lambda a: (a.text(), a.number("h"), a.text())):
        if code:
            raise KafkaRefused(f"topic {name!r} was not made", code, message)
    wait_until(lambda: _is_usable(addresses, name), timeout, lambda: f"topic {name!r} was made, but cannot be used")


def _is_usable(addresses: Sequence[Address], name: str) -> bool:
    """Whether every partition has a leader that knows that it is one: others hear of it a moment before."""
    try:
        return describe(addresses, name).ready and bool(_offsets(addresses, name, LATEST))
    except KafkaRefused as fault:
        if fault.code in (Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE):
            return False
        raise


def delete(addresses: Sequence[Address], name: str, timeout: float) -> None:
    """Delete a topic, and wait until it is gone."""
    answer = ask_any(addresses, Api.DELETE_TOPICS, items(text(name)) + struct.pack(">i", WAIT_MS))
    answer.number("i")
    for _, code in answer.items(lambda a: (a.text(), a.number("h"))):
        if code:
            raise KafkaRefused(f"topic {name!r} was not deleted", code)
    gone = Code.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: describe(addresses, name).error == gone, timeout, lambda: f"topic {name!r} is still there")


def send(
    addresses: Sequence[Address], name: str, messages: Sequence[tuple[Message | None, Message | None]], partition: int
) -> int:
    """Send messages, each a key and a value, to a partition. Returns the offset of the first.

    When this returns, the brokers have them. When it raises, they may have them: there are no retries here.
    """
    batch = kafka_records.encode([(_coded(key), _coded(value)) for key, value in messages], int(time.time() * 1000))
    part = struct.pack(">i", partition) + data(batch)
    body = text(None) + struct.pack(">hi", ALL_REPLICAS, WAIT_MS) + items(text(name) + items(part))
    answer = ask(_leader(addresses, name, partition), Api.PRODUCE, body)

    code, first = _of_one_partition(answer, _sent)
    if code:
        raise KafkaRefused(f"partition {partition} of {name!r} did not take the messages", code)
    return first


def offsets(addresses: Sequence[Address], name: str, when: int) -> dict[int, int]:
    """The first or the next offset of each partition. Waits until each has a leader again."""
    found: list[dict[int, int]] = []
    why = ""

    def are_known() -> bool:
        nonlocal why
        try:
            found.append(_offsets(addresses, name, when))
        except KafkaRefused as fault:
            if fault.code != Code.NOT_LEADER_OR_FOLLOWER:
                raise
            why = str(fault)
        return bool(found)

    wait_until(are_known, WAIT_MS / 1000, lambda: why)
    return found[0]


def _offsets(addresses: Sequence[Address], name: str, when: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition in _known(addresses, name).leaders:
        part = struct.pack(">iq", partition, when)
        body = struct.pack(">i", NULL) + items(text(name) + items(part))
        answer = ask(_leader(addresses, name, partition), Api.LIST_OFFSETS, body)
        code, found[partition] = _of_one_partition(answer, _listed)
        if code:
            raise KafkaRefused(f"partition {partition} of {name!r}", code)
    return found


def read(addresses: Sequence[Address], name: str) -> list[Record]:
    """Every message that the topic holds now, by partition and offset."""
    first, end = offsets(addresses, name, EARLIEST), offsets(addresses, name, LATEST)
    found: list[Record] = []
    for partition, through in end.items():
        at = first[partition]
        while at < through:
            some = [record for record in _fetch(addresses, name, partition, at) if record.offset >= at]
            found += [record for record in some if record.offset < through]
            if not some:
                break  # nothing but ends of transactions
            at = some[-1].offset + 1
    return found


def _fetch(addresses: Sequence[Address], name: str, partition: int, at: int) -> list[Record]:
    part = struct.pack(">iqi", partition, at, MAX_BYTES)
    limits = struct.pack(">iiiib", NULL, 0, 0, MAX_BYTES, 0)
    answer = ask(_leader(addresses, name, partition), Api.FETCH, limits + items(text(name) + items(part)))
    answer.number("i")
    code, batches = _of_one_partition(answer, _fetched)
    if code:
        raise KafkaRefused(f"partition {partition} of {name!r} at offset {at}", code)
    return list(kafka_records.decode(batches, partition))


def _sent(a: Answer) -> tuple[int, int]:
    _, code, first, _ = a.number("i"), a.number("h"), a.number("q"), a.number("q")
    return code, first


def _listed(a: Answer) -> tuple[int, int]:
    _, code, _, offset = a.number("i"), a.number("h"), a.number("q"), a.number("q")
    return code, offset


def _fetched(a: Answer) -> tuple[int, bytes]:
    _, code, _, _ = a.number("i"), a.number("h"), a.number("q"), a.number("q")
    a.items(lambda aborted: (aborted.number("q"), aborted.number("q")))
    return code, a.data()


def _of_one_partition(answer: Answer, part: Callable[[Answer], Item]) -> Item:
    """The answer for one partition of one topic, which is all that was asked."""
    ((_, (found,)),) = answer.items(lambda a: (a.text(), a.items(part)))
    return found


def _metadata(addresses: Sequence[Address], names: Sequence[str]) -> tuple[dict[int, Address], dict[str, Topic]]:
    body = items(*map(text, names)) + struct.pack(">?", False)  # False: do not make topics
    answer = ask_any(addresses, Api.METADATA, body)
    answer.number("i")
    known: dict[int, Address] = {}
    for number, host, port, _ in answer.items(lambda a: (a.number("i"), a.text() or "", a.number("i"), a.text())):
        known[number] = host, port
    answer.text()
    answer.number("i")

    def partition(a: Answer) -> tuple[int, Address | None]:
        _, number, leader = a.number("h"), a.number("i"), a.number("i")
        for _ in ("replicas", "in sync"):
            a.items(lambda replica: replica.number("i"))
        return number, known.get(leader)

    def topic(a: Answer) -> tuple[str, Topic]:
        error, name, _ = a.number("h"), a.text() or "", a.number("b")
        return name, Topic(error, dict(sorted(a.items(partition))))

    return known, dict(answer.items(topic))


def _known(addresses: Sequence[Address], name: str) -> Topic:
    topic = describe(addresses, name)
    if topic.error:
        raise KafkaRefused(f"topic {name!r}", topic.error)
    return topic


def _leader(addresses: Sequence[Address], name: str, partition: int) -> Address:
    topic = _known(addresses, name)
    if partition not in topic.leaders:
        raise ServerFailed(f"topic {name!r} has partitions 0 to {len(topic.leaders) - 1}, not {partition}")
    leader = topic.leaders[partition]
    if leader is None:
        raise KafkaRefused(f"partition {partition} of {name!r}", Code.LEADER_NOT_AVAILABLE)
    return leader


def _coded(message: Message | None) -> bytes | None:
    return message.encode() if isinstance(message, str) else message
