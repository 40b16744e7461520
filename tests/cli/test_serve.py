"""The command line of `epochal serve`, with a stand-in for the server."""

from __future__ import annotations

import json
import os
import signal

import pytest

from epochal.cli import main, serve
from epochal.testing import servers
from epochal.testing.servers import (
    CassandraCluster,
    HdfsCluster,
    KafkaCluster,
    Route,
    S3Store,
    ServerFailed,
    ZooKeeperCluster,
)


class StandInNode:
    name = "Cassandra on 127.0.0.1:9142"
    host = "127.0.0.1"
    pid = 4711
    running = True

    def log_tail(self) -> str:
        return "its last words"


class Server:
    """What `servers.cassandra` was asked for; it dies, or whoever serves is asked to end, at the first look."""

    def __init__(self) -> None:
        self.asked: dict[str, object] = {}
        self.ended = 0
        self.at_first_look = signal.SIGINT

    def start(self, nodes: int, **options: object) -> CassandraCluster:
        self.asked = {"nodes": nodes, **options}
        return CassandraCluster([StandInNode()], 9142, route=Route.LOCAL, end=self._end)  # type: ignore[list-item]

    def look(self, seconds: float) -> None:
        os.kill(os.getpid(), self.at_first_look)

    def _end(self) -> None:
        self.ended += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(servers, "cassandra", made.start)
    monkeypatch.setattr("epochal.cli.serve.time.sleep", made.look)
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_end(
    server: Server, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    server.at_first_look = number

    assert main(["serve", "cassandra", "--port", "9142", "--nodes", "3", "--folder", "kept"]) == 0

    said = capsys.readouterr()
    assert 'CassandraSink("shop.orders", contact_points=["127.0.0.1"], port=9142)' in said.out
    assert "export EPOCHAL_CASSANDRA=127.0.0.1:9142" in said.out
    assert "ready after" in said.err
    tell = server.asked.pop("tell")
    assert callable(tell)
    assert server.asked == {"nodes": 3, "port": 9142, "folder": "kept", "own": True}
    assert server.ended == 1


def test_json_is_one_line_and_all_that_stdout_gets(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "cassandra", "--json"]) == 0

    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert json.loads(said) == {
        "hosts": ["127.0.0.1"],
        "port": 9142,
        "route": "local",
        "nodes": [{"host": "127.0.0.1", "pid": 4711}],
    }


def test_a_node_that_dies_ends_it_with_its_last_words(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StandInNode, "running", False)

    assert main(["serve", "cassandra"]) == 1
    assert "Cassandra on 127.0.0.1:9142 has ended:\nits last words" in capsys.readouterr().err
    assert server.ended == 1


def test_a_server_that_does_not_start_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> CassandraCluster:
        raise ServerFailed("no Java")

    monkeypatch.setattr(servers, "cassandra", fail)

    assert main(["serve", "cassandra", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no Java"


def test_the_usual_port_is_taken_if_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "is_free", lambda host, port: True)
    assert serve._usual_port(9042, 3, None) == 9042
    monkeypatch.setattr(serve, "is_free", lambda host, port: host != "127.0.0.3")
    assert serve._usual_port(9042, 3, None) is None
    assert serve._usual_port(9042, 1, None) == 9042


@pytest.mark.parametrize("wrong", [[], ["oracle"], ["cassandra", "--nodes", "2"], ["cassandra", "--port", "x"]])
def test_wrong_usage_has_an_exit_code_of_its_own(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^64$"):
        main(["serve", *wrong])
    assert "usage: epochal serve" in capsys.readouterr().err


def test_the_help_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "epochal serve   cassandra" in capsys.readouterr().out


def test_hdfs_is_served_in_the_same_way(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def start(datanodes: int, **options: object) -> HdfsCluster:
        asked.append((datanodes, options["folder"], options["port"], options["own"]))
        return HdfsCluster(
            "hdfs://127.0.0.1:9",
            "http://127.0.0.1:10",
            namenode=StandInNode(),  # type: ignore[arg-type]
            datanodes=[],
            replication=2,
            route=Route.LOCAL,
            end=server._end,
        )

    monkeypatch.setattr(servers, "hdfs", start)

    assert main(["serve", "hdfs", "--datanodes", "2", "--folder", "kept"]) == 0
    assert main(["serve", "hdfs", "--json"]) == 0
    said = capsys.readouterr().out
    assert 'RollingFileSink("hdfs://127.0.0.1:9/archive/orders")' in said
    assert "--conf spark.hadoop.dfs.replication=2" in said
    answer = json.loads(said.splitlines()[-1])
    assert (answer["uri"], answer["web"], [node["pid"] for node in answer["nodes"]]) == (
        "hdfs://127.0.0.1:9",
        "http://127.0.0.1:10",
        [4711],
    )
    assert asked == [(2, "kept", None, True), (1, None, None, True)]
    assert server.ended == 2


def test_kafka_is_served_in_the_same_way(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def start(**options: object) -> KafkaCluster:
        asked.append((options["partitions"], options["folder"], options["port"], options["own"]))
        return KafkaCluster([StandInNode()], 9192, route=Route.LOCAL, end=server._end)  # type: ignore[list-item]

    monkeypatch.setattr(servers, "kafka", start)
    monkeypatch.setattr(serve, "is_free", lambda host, port: port == 9092)

    assert main(["serve", "kafka", "--partitions", "2", "--folder", "kept", "--port", "9192"]) == 0
    assert main(["serve", "kafka", "--json"]) == 0
    said = capsys.readouterr().out
    assert '.option("kafka.bootstrap.servers", "127.0.0.1:9192")' in said
    assert "export EPOCHAL_KAFKA=127.0.0.1:9192" in said
    assert json.loads(said.splitlines()[-1]) == {
        "bootstrap": "127.0.0.1:9192",
        "port": 9192,
        "route": "local",
        "nodes": [{"host": "127.0.0.1", "pid": 4711}],
    }
    assert asked == [(2, "kept", 9192, True), (1, None, 9092, True)]
    assert server.ended == 2


def test_kafka_has_the_topics_that_it_is_asked_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[str, int]] = []

    class Broker(KafkaCluster):
        def has_topic(self, name: str) -> bool:
            return name == "kept"

        def create_topic(self, name: str, partitions: int = 1, settings: object = None) -> None:
            made.append((name, partitions))

    broker = Broker([StandInNode()], 9192, route=Route.LOCAL, end=server._end)  # type: ignore[list-item]
    monkeypatch.setattr(servers, "kafka", lambda **_: broker)
    assert main(["serve", "kafka", "--topic", "orders:4", "--topic", "kept:2", "--topic", "refunds"]) == 0

    assert made == [("orders", 4), ("refunds", 1)]
    said = capsys.readouterr().err
    assert "topic 'orders' with 4 partitions" in said
    assert "topic 'kept' is there already" in said


@pytest.mark.parametrize("topic", ["", "a b", "..", "orders:", "orders:0", "orders:x", "a" * 250])
def test_a_topic_that_cannot_be_is_wrong_usage(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^64$"):
        main(["serve", "kafka", "--topic", topic])
    assert "argument --topic" in capsys.readouterr().err


def test_zookeeper_is_served_in_the_same_way(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def start(**options: object) -> ZooKeeperCluster:
        asked.append((options["folder"], options["port"], options["own"]))
        return ZooKeeperCluster([StandInNode()], 2191, route=Route.LOCAL, end=server._end)  # type: ignore[list-item]

    monkeypatch.setattr(servers, "zookeeper", start)
    monkeypatch.setattr(serve, "is_free", lambda host, port: port == 2181)

    assert main(["serve", "zookeeper", "--folder", "kept", "--port", "2191"]) == 0
    assert main(["serve", "zookeeper", "--json"]) == 0
    said = capsys.readouterr().out
    assert "epochal run orders.toml --standby --zookeeper 127.0.0.1:2191" in said
    assert "export EPOCHAL_ZOOKEEPER=127.0.0.1:2191" in said
    assert json.loads(said.splitlines()[-1]) == {
        "connect": "127.0.0.1:2191",
        "port": 2191,
        "route": "local",
        "nodes": [{"host": "127.0.0.1", "pid": 4711}],
    }
    assert asked == [("kept", 2191, True), (None, 2181, True)]
    assert server.ended == 2


def test_an_object_store_is_served_in_the_same_way(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def start(**options: object) -> S3Store:
        asked.append(tuple(options[name] for name in ("bucket", "server", "folder", "port", "own")))
        variables = {"AWS_ACCESS_KEY_ID": "any"}
        endpoint = "http://127.0.0.1:9009"
        return S3Store(
            [StandInNode()],  # type: ignore[list-item]
            endpoint,
            str(options["bucket"]),
            credentials=variables,
            route=Route.LOCAL,
            end=server._end,
        )

    monkeypatch.setattr(servers, "s3", start)
    monkeypatch.setattr(serve, "is_free", lambda host, port: port == 9000)

    mine = ["--bucket", "mine", "--server", "versitygw", "--folder", "kept", "--port", "9009"]
    assert main(["serve", "s3", *mine]) == 0
    assert main(["serve", "s3", "--json"]) == 0
    said = capsys.readouterr().out
    assert "export AWS_ENDPOINT_URL=http://127.0.0.1:9009 AWS_ACCESS_KEY_ID=any" in said
    assert "export EPOCHAL_S3=http://127.0.0.1:9009/mine" in said
    assert json.loads(said.splitlines()[-1]) == {
        "endpoint": "http://127.0.0.1:9009",
        "url": "s3://epochal",
        "route": "local",
        "environment": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9009", "AWS_ACCESS_KEY_ID": "any"},
        "nodes": [{"host": "127.0.0.1", "pid": 4711}],
    }
    assert asked == [("mine", "versitygw", "kept", 9009, True), ("epochal", "moto", None, 9000, True)]
    assert server.ended == 2
