"""Brokers that die, transactions that time out, topics that go away: a decided epoch is late, never lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from epochal import KafkaSink, Refused, Rewound
from epochal.participant import StoreAway
from epochal.sinks.kafka import ledger
from epochal.sinks.kafka.layout import MARKS, epoch_key, transactional_id
from epochal.sinks.kafka.ledger_state import mark_of
from epochal.testing import servers
from epochal.testing.servers import KafkaCluster
from epochal.txn.model import Attempt, Handle, Outcome
from integration_tests.kafka_sink.consuming import Target
from integration_tests.kafka_sink.epochs import LINEAGE, committed, frame, held_at, stage, write
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

THEIRS = "c0ffee00-0000-0000-0000-000000000002"


@pytest.fixture
def sink(target: Target, tmp_path: Path) -> KafkaSink:
    return target.sink(staging=str(tmp_path / "staged"), transaction_timeout="20 s")


def numbers(target: Target) -> list[int]:
    return sorted(json.loads(message.value() or b"")["number"] for message in target.messages())


def is_open(bootstrap: str, topic: str, partition: int = 0) -> bool:
    """Whether a transaction is open in a partition."""
    admin, at = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(topic, partition)
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        (future,) = admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=level).values()
        ends.append(future.result(30).offset)
    return bool(ends[0] < ends[1])


@pytest.mark.parametrize("point", ["after-send", "before-transaction"])
def test_a_broker_that_is_killed_in_mid_commit_and_comes_back_loses_and_doubles_nothing(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink, tmp_path: Path, point: str
) -> None:
    write(sink, 0, frame(spark, 1))
    attempt, handle = stage(sink, 1, frame(spark, 2, 3))
    with held_at(point, tmp_path / "gate", (sink, attempt, handle)) as commit:
        broker.nodes[0].kill()
    broker.nodes[0].start()
    assert sink.open(LINEAGE).last >= 0, "a topic whose leader is not known yet was taken for an empty one"
    commit.ended()
    outcome = committed(sink, attempt, handle)

    assert outcome in (Outcome.COMMITTED, Outcome.ALREADY_COMMITTED)
    assert numbers(target) == [1, 2, 3]
    assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED


@pytest.mark.matrix
def test_a_broker_that_hung_so_long_that_it_lost_its_partitions_is_written_to_at_once(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink
) -> None:
    write(sink, 0, frame(spark, 1))
    broker.nodes[0].pause()
    time.sleep(12)  # longer than broker.session.timeout.ms
    broker.nodes[0].resume()
    attempt, handle = stage(sink, 1, frame(spark, 2), after=0)
    outcome = committed(sink, attempt, handle)  # in a minute: the client would remember leaders for five

    assert outcome is Outcome.COMMITTED
    assert numbers(target) == [1, 2]


def test_a_commit_while_no_broker_answers_says_so_and_is_tried_again(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink
) -> None:
    attempt, handle = stage(sink, 0, frame(spark, 1, 2))
    broker.nodes[0].kill()
    with pytest.raises(StoreAway):
        sink.commit(attempt, handle)
    broker.nodes[0].start()

    assert committed(sink, attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == [1, 2]


def test_a_transaction_that_the_brokers_have_rolled_back_is_sent_again_with_more_time(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    sink = target.sink(staging=str(tmp_path / "staged"), transaction_timeout="2 s")
    attempt, handle = stage(sink, 0, frame(spark, 1, 2))
    with held_at("before-transaction", tmp_path / "gate", (sink, attempt, handle)) as commit:
        wait_until(lambda: not is_open(target.bootstrap, MARKS), "the brokers to roll the transaction back")
        seen = numbers(target)
    commit.ended()
    outcome = committed(sink, attempt, handle)

    assert seen == []
    assert outcome is Outcome.COMMITTED
    assert numbers(target) == [1, 2]


def test_an_epoch_that_waits_longer_than_a_transaction_may_take_is_committed(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    # Sinks that keep a transaction open over a checkpoint, as Flink's does, lose the epoch here.
    sink = target.sink(staging=str(tmp_path / "staged"), transaction_timeout="1 s")
    write(sink, 0, frame(spark, 1))
    attempt, handle = stage(sink, 1, frame(spark, 2, 3))
    time.sleep(3)  # three transactions' time

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == [1, 2, 3]


def test_a_topic_that_is_deleted_before_the_commit_holds_the_epoch_until_it_is_there_again(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink
) -> None:
    attempt, handle = stage(sink, 0, frame(spark, 1, 2))
    broker.delete_topic(target.topic)
    with pytest.raises(Refused, match=f"there is no topic '{target.topic}'.*Create it first"):
        sink.commit(attempt, handle)
    broker.create_topic(target.topic, partitions=1)

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == [1, 2]


def test_a_topic_that_was_deleted_and_created_again_is_not_taken_for_the_one_before(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink
) -> None:
    write(sink, 0, frame(spark, 1))
    attempt, handle = stage(sink, 1, frame(spark, 2), after=0)
    broker.delete_topic(target.topic)
    broker.create_topic(target.topic, partitions=2)

    assert sink.open(LINEAGE).last == -1
    with pytest.raises(Rewound, match=r"epoch 0 was written to .* and is not there any more"):
        sink.commit(attempt, handle)
    assert numbers(target) == []


# Other streams' transactions in epochal's own topic.


@pytest.fixture
def other(broker: KafkaCluster) -> Iterator[Producer]:
    """A driver of another stream, which has died, or hangs, before it could end its transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "theirs", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(30)


def marked(producer: Producer, target: Target, lineage: str) -> None:
    mark = mark_of(Attempt(lineage, 0, 1), offsets="", rows=0, digest=None, topics={}, ranges={})
    producer.produce(MARKS, key=epoch_key(target.topic, lineage, 0), value=mark.to_json())
    producer.flush(30)


def test_another_streams_open_transaction_does_not_keep_ours_from_starting(
    spark: SparkSession, target: Target, sink: KafkaSink, other: Producer
) -> None:
    write(sink, 0, frame(spark, 1))
    marked(other, target, THEIRS)
    before = time.monotonic()

    assert sink.open(LINEAGE).last == 0
    assert sink.holder(LINEAGE) is not None
    assert time.monotonic() - before < ledger.PATIENCE


def test_what_is_committed_behind_another_streams_open_transaction_is_waited_for(
    spark: SparkSession, target: Target, sink: KafkaSink, other: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sink, 0, frame(spark, 1))
    marked(other, target, THEIRS)
    write(sink, 1, frame(spark, 2))
    monkeypatch.setattr(ledger, "PATIENCE", 0.5)
    with pytest.raises(StoreAway, match="a transaction of another stream has been open"):
        sink.open(LINEAGE)
    other.abort_transaction(30)
    other.begin_transaction()

    assert sink.open(LINEAGE).last == 1
    assert numbers(target) == [1, 2]


def test_the_open_transaction_of_a_driver_that_died_does_not_keep_its_successor_from_starting(
    spark: SparkSession, target: Target, sink: KafkaSink
) -> None:
    write(sink, 0, frame(spark, 1))
    name = transactional_id(target.topic, LINEAGE)
    dead = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": name, "log_level": 0})
    dead.init_transactions(30)
    dead.begin_transaction()
    mark = mark_of(Attempt(LINEAGE, 1, 1), offsets="", rows=0, digest=None, topics={}, ranges={})
    dead.produce(MARKS, key=epoch_key(target.topic, LINEAGE, 1), value=mark.to_json())
    dead.flush(30)
    before = time.monotonic()
    found = sink.open(LINEAGE)
    attempt, handle = stage(sink, 1, frame(spark, 2))

    assert found.last == 0
    assert time.monotonic() - before < ledger.PATIENCE
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == [1, 2]


# Two processes.


def test_two_processes_that_commit_an_epoch_at_once_show_it_once(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, frame(spark, *range(100)))
    facts = {"description": sink.describe(), "lineage": attempt.lineage, "handle": handle.to_json()}
    order = tmp_path / "order"
    order.write_text(json.dumps(facts))
    command = [sys.executable, "-m", "integration_tests.kafka_sink.committer", str(order)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in started]

    assert [process.returncode for process in started] == [0, 0], said
    assert sorted(text.splitlines()[-1] for text in said) == ["already committed", "committed"]
    assert numbers(target) == list(range(100))
    assert sink.commit(attempt, Handle.from_json(handle.to_json())) is Outcome.ALREADY_COMMITTED


# Three brokers.


@pytest.mark.local
@pytest.mark.matrix
@pytest.mark.timeout(1800)
def test_one_broker_of_three_may_be_away_and_with_two_away_an_epoch_waits(spark: SparkSession, tmp_path: Path) -> None:
    with servers.kafka(3) as cluster:
        cluster.create_topic("three", partitions=3, settings={"min.insync.replicas": "2"})
        target = Target(cluster.bootstrap, "three")
        sink = target.sink(staging=str(tmp_path / "staged"), transaction_timeout="60 s")
        write(sink, 0, frame(spark, 1, 2, 3))
        for number, node in enumerate(cluster.nodes, 1):  # one of them is the transaction's coordinator
            attempt, handle = stage(sink, number, frame(spark, 10 * number, 10 * number + 1))
            with held_at("before-transaction", tmp_path / "gate", (sink, attempt, handle)) as commit:
                node.kill()
            commit.ended()
            assert committed(sink, attempt, handle) in (Outcome.COMMITTED, Outcome.ALREADY_COMMITTED)
            node.start()
            cluster.wait_until_whole()
        attempt, handle = stage(sink, 4, frame(spark, 4))
        for node in cluster.nodes[:2]:
            node.kill()
        with pytest.raises(StoreAway):
            sink.commit(attempt, handle)
        for node in cluster.nodes[:2]:
            node.start()

        assert committed(sink, attempt, handle) is Outcome.COMMITTED
        assert numbers(target) == [1, 2, 3, 4, 10, 11, 20, 21, 30, 31]


@pytest.mark.matrix
def test_messages_of_another_program_among_the_marks_stop_a_stream_only_in_place_of_a_record(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    own, staging = f"marks-{target.topic}", str(tmp_path / "staged")
    sink = target.sink(staging=staging, ledger_topic=own)
    write(sink, 0, frame(spark, 1))
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(own, key=b"of another program", value=b"\xff")
    producer.flush()
    write(sink, 1, frame(spark, 2))
    assert numbers(target) == [1, 2]
    producer.produce(own, key=epoch_key(target.topic, LINEAGE, 1), value=None)
    producer.flush()
    with pytest.raises(Refused, match=f"topic '{own}', offset .* has removed a record of epochal") as refused:
        sink.open(LINEAGE)
    assert "another ledger_topic=" in str(refused.value)
    elsewhere = target.sink(staging=staging, ledger_topic=f"{own}-2")

    assert elsewhere.open(LINEAGE).last == -1  # the guard asks what to do: adopt=
    write(elsewhere, 2, frame(spark, 3))
    assert numbers(target) == [1, 2, 3]
