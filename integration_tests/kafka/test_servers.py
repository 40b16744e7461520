"""Real Kafka: it answers, keeps what it acknowledged through kill -9, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.testing import servers
from epochal.testing.servers import KafkaCluster, Route, ServerFailed
from epochal.testing.servers.kafka_wire import Code, KafkaRefused
from epochal.testing.servers.ports import listens
from integration_tests.cassandra.test_servers import is_there, serve
from integration_tests.kafka.topics import Topic
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_reads_what_was_sent_and_what_spark_writes_is_read(spark: SparkSession, topic: Topic) -> None:
    topic.kafka.send(topic.name, ["one", b"two", None], partition=1, key="k")
    source = {"kafka.bootstrap.servers": topic.kafka.bootstrap}
    found = spark.read.format("kafka").options(subscribe=topic.name, **source).load().collect()
    rows = spark.createDataFrame([("three", 0)], "value string, partition int")
    rows.write.format("kafka").options(topic=topic.name, **source).save()

    assert [(row.partition, row.offset, row.key, row.value) for row in found] == [
        (1, 0, b"k", b"one"),
        (1, 1, b"k", b"two"),
        (1, 2, b"k", None),
    ]
    assert [(record.partition, record.offset, record.value) for record in topic.kafka.read(topic.name)] == [
        (0, 0, b"three"),
        (1, 0, b"one"),
        (1, 1, b"two"),
        (1, 2, None),
    ]


def test_what_it_acknowledged_survives_kill_9(topic: Topic) -> None:
    (broker,) = topic.kafka.nodes
    pid = broker.pid
    for number in range(20):
        topic.kafka.send(topic.name, [str(number)] * 3, partition=number % 2)
    broker.kill()
    assert not is_there(pid)

    broker.start()

    assert topic.ends() == {0: 30, 1: 30}
    values = [int(record.value or b"") for record in topic.kafka.read(topic.name)]
    assert sorted(values) == sorted(number for number in range(20) for _ in range(3))


def test_what_cannot_be_is_refused_by_the_broker(topic: Topic) -> None:
    kafka = topic.kafka
    with pytest.raises(KafkaRefused, match="TOPIC_ALREADY_EXISTS"):
        kafka.create_topic(topic.name)
    with pytest.raises(ServerFailed, match="has partitions 0 to 1, not 2"):
        kafka.send(topic.name, ["x"], partition=2)
    kafka.delete_topic(topic.name)
    with pytest.raises(KafkaRefused) as raised:
        kafka.end_offsets(topic.name)

    assert raised.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_one_that_is_given_is_used(kafka: KafkaCluster, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_KAFKA", kafka.bootstrap)
    monkeypatch.delenv("EPOCHAL_SERVERS", raising=False)
    with servers.kafka() as given:
        given.send(topic.name, ["there"])

    assert given.route is Route.GIVEN
    assert [record.value for record in kafka.read(topic.name)] == [b"there"]
    assert kafka.nodes[0].running


@pytest.mark.local
def test_a_kept_folder_holds_one_broker_and_stays(tmp_path: Path) -> None:
    with servers.kafka(folder=tmp_path / "kept", partitions=3) as cluster:
        assert cluster.route is Route.LOCAL
        assert not cluster.has_topic("kept")
        cluster.create_topic("kept")
        assert cluster.has_topic("kept")
        cluster.send("kept", ["data"])
        with pytest.raises(ServerFailed, match="a server already runs in"):
            servers.kafka(folder=tmp_path / "kept")
    assert not cluster.nodes[0].running

    with servers.kafka(folder=tmp_path / "kept") as again:
        assert again.bootstrap == cluster.bootstrap
        assert [record.value for record in again.read("kept")] == [b"data"]


def test_a_broker_that_cannot_start_is_told_with_its_log() -> None:
    with pytest.raises(ServerFailed, match=r"ended with .* while it started") as raised:
        servers.kafka(settings={"num.io.threads": "nonsense"})

    assert "nonsense" in str(raised.value)


def test_kill_9_of_whoever_serves_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    server = serve("kafka", temporary=tmp_path)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    answer = json.loads(line)
    (pid,) = [node["pid"] for node in answer["nodes"]]
    assert listens("127.0.0.1", answer["port"])
    assert any(tmp_path.iterdir())

    server.kill()
    _, said = server.communicate(timeout=60)

    wait_until(lambda: not is_there(pid), "the broker to end")
    wait_until(lambda: not any(tmp_path.iterdir()), "its folder to be removed")
    assert "ready after" in said
