"""What the settings of a topic mean for the messages that it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from epochal.sinks.kafka.cluster.clients import UNLIMITED, Topic, _topic

LONGEST = str((1 << 63) - 1)  # as brokers spell that there is no limit


def topic(settings: dict[str, str], allowed: Any = None) -> Topic:
    described = SimpleNamespace(topic_id="kHc0", partitions=[0, 1], authorized_operations=allowed)
    return _topic("orders", described, settings)


def test_what_brokers_leave_out_has_kafkas_defaults() -> None:
    assert topic({}) == Topic(name="orders", identity="kHc0", partitions=2)


def test_times_are_limited_by_either_setting_and_those_of_older_brokers_both_ways() -> None:
    new = topic({"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": LONGEST})
    old = topic({"message.timestamp.difference.max.ms": "1000"})

    assert (new.ahead_ms, new.behind_ms) == (3_600_000, UNLIMITED)
    assert (old.ahead_ms, old.behind_ms) == (1000, 1000)
    assert not topic({"message.timestamp.type": "LogAppendTime"}).takes_time


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True)],
)
def test_policies_of_cleaning_up_are_told_apart(policy: str, compacted: bool, deletes: bool) -> None:
    found = topic({"cleanup.policy": policy})

    assert (found.compacted, found.deletes) == (compacted, deletes)


def test_a_topic_that_compresses_messages_anew_has_room_for_those_that_grow() -> None:
    assert topic({"max.message.bytes": "2000", "compression.type": "producer"}).max_bytes == 2000
    assert topic({"max.message.bytes": "2000", "compression.type": "snappy"}).max_bytes == 1700


def test_whoever_may_not_write_is_known_where_brokers_tell() -> None:
    assert topic({}, None).writable
    assert topic({}, [AclOperation.DESCRIBE, AclOperation.WRITE]).writable
    assert not topic({}, [AclOperation.DESCRIBE]).writable
