"""Kafka for tests, without starting it: options, settings, ports, record batches, and what is said on the wire."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from epochal.testing import servers
from epochal.testing.servers import (
    KafkaCluster,
    Route,
    ServerFailed,
    containers,
    kafka_docker,
    kafka_given,
    kafka_java,
    kafka_local,
    kafka_properties,
    kafka_records,
    kafka_topics,
    kafka_wire,
)
from epochal.testing.servers.given_node import GivenNode
from epochal.testing.servers.java import Java
from epochal.testing.servers.kafka_records import Record
from epochal.testing.servers.kafka_wire import Answer, Api, Code, KafkaRefused, items, text
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.routes import KAFKA, KAFKA_IMAGE, ROUTES
from epochal.txn.errors import OptionError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (KAFKA, KAFKA_IMAGE, ROUTES):
        monkeypatch.delenv(variable, raising=False)


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        servers.kafka(partitions=0, port=70_000, timeout=0)

    assert len(raised.value.faults) == 3


def test_it_listens_on_loopback_only_and_what_is_given_wins() -> None:
    found = kafka_properties.settings(Path("/home"), "127.0.0.1", 1, 2, 3, {"num.io.threads": 9})

    assert found["listeners"] == "CLIENTS://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert found["advertised.listeners"] == "CLIENTS://127.0.0.1:1"
    assert (found["num.partitions"], found["num.io.threads"], found["log.dirs"]) == (3, 9, "/home/data")


def test_a_setting_is_read_back_as_it_was_given_whatever_it_holds() -> None:
    written = kafka_properties.text({"a b": " x=y\\z\n#é😀", "c": True})

    assert written == "a\\ b=\\ x=y\\\\z\\n#\\u00e9\\ud83d\\ude00\nc=true\n"


def test_the_options_given_come_last_and_nothing_is_written_elsewhere() -> None:
    jars = [Path("/a.jar"), Path("/b.jar")]
    command = kafka_java.command(Java(Path("/java"), 17), jars, Path("/home"), ["-Xmx1g"], kafka_java.BROKER, "file")

    assert command[-5:] == ["-Xmx1g", "-cp", "/a.jar:/b.jar", "kafka.Kafka", "file"]
    assert "-Djava.io.tmpdir=/home/tmp" in command


def test_an_id_that_begins_with_a_hyphen_is_not_taken_for_an_option() -> None:
    assert kafka_java.format_arguments("-x", Path("/f")) == ["format", "--cluster-id=-x", "--config", "/f"]


def test_a_folder_that_was_used_before_keeps_its_ports(tmp_path: Path) -> None:
    first = kafka_local._ports(tmp_path, None)
    other = free_port(["127.0.0.1"], first)

    assert kafka_local._ports(tmp_path, None) == first
    assert kafka_local._ports(tmp_path, other) == (other, first[1])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"127.0.0.1:{port} is in use"):
            kafka_local._ports(tmp_path, port)


def test_one_that_is_given_is_used_and_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv(KAFKA, f"127.0.0.1:{port}")
        found = servers.kafka()

        assert (found.bootstrap, found.route, found.owned) == (f"127.0.0.1:{port}", Route.GIVEN, False)
        with pytest.raises(ServerFailed, match="was given by EPOCHAL_KAFKA"):
            found.nodes[0].kill()
    monkeypatch.setattr(kafka_given, "PATIENCE", 0.0)
    with pytest.raises(ServerFailed, match=f"nothing listens at EPOCHAL_KAFKA=127.0.0.1:{port}"):
        servers.kafka()


def test_several_hosts_are_spelled_for_kafkas_clients() -> None:
    nodes = [GivenNode("Kafka", KAFKA, host, 9) for host in ("a", "::1")]

    assert KafkaCluster(nodes, 9, route=Route.GIVEN, end=lambda: None).bootstrap == "a:9,[::1]:9"


@pytest.mark.parametrize("special", [{"partitions": 2}, {"settings": {"a": 1}}, {"port": 9142}, {"folder": "f"}])
def test_every_wish_makes_it_a_server_of_ones_own(special: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA, "127.0.0.1:1")
    made = KafkaCluster([], 1, route=Route.LOCAL, end=lambda: None)
    monkeypatch.setattr(kafka_local, "start", lambda options, tell: made)

    assert servers.kafka(**special) is made  # type: ignore[arg-type]


@pytest.mark.parametrize("special", [{"brokers": 3}, {"settings": {"listeners": "A://127.0.0.1:1"}}])
def test_what_one_container_cannot_be_is_refused_with_what_to_do(
    special: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROUTES, "docker")
    with pytest.raises(ServerFailed, match="are not run in containers; EPOCHAL_SERVERS=local"):
        servers.kafka(**special)  # type: ignore[arg-type]
    with pytest.raises(ServerFailed, match="containers cannot use a local folder; set EPOCHAL_SERVERS=local"):
        servers.kafka(folder="f")


@pytest.mark.parametrize(("brokers", "route"), [(1, Route.DOCKER), (3, Route.LOCAL)])
def test_three_brokers_are_processes_even_if_an_engine_answers(
    brokers: int, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, way in ((kafka_docker, Route.DOCKER), (kafka_local, Route.LOCAL)):
        made = KafkaCluster([], 1, route=way, end=lambda: None)
        monkeypatch.setattr(module, "start", lambda options, tell, made=made: made)
    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    monkeypatch.setattr(containers, "elsewhere", lambda: None)

    assert servers.kafka(brokers).route is route


def test_a_container_formats_its_folder_at_its_first_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    for name in ("kafka-storage.sh", "kafka-server-start.sh"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "${{0##*/}} $1" >> {said}\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(kafka_docker, "BIN", PurePosixPath(tmp_path))
    monkeypatch.setattr(kafka_docker, "HOME", PurePosixPath(tmp_path / "home"))
    for _ in range(2):
        subprocess.run(["sh", "-c", kafka_docker.script()], check=True)
        (tmp_path / "home" / "data").mkdir(exist_ok=True)
        (tmp_path / "home" / "data" / "meta.properties").touch()

    start = "kafka-server-start.sh /etc/epochal/server.properties"
    assert said.read_text().splitlines() == ["kafka-storage.sh format", start, start]


def test_messages_are_read_as_they_were_written() -> None:
    sent = [(b"key", b"value"), (None, b""), (b"", None), (None, b"x" * 300)]
    batch = kafka_records.encode(sent, 1_700_000_000_000)

    found = list(kafka_records.decode(batch + batch[:-1], 7))

    assert found == [Record(7, number, key, value) for number, (key, value) in enumerate(sent)]


def test_a_batch_is_the_bytes_that_the_format_says() -> None:
    batch = kafka_records.encode([(None, b"a")], 5)

    head = "000000000000000000000039ffffffff02"
    body = "00000000000000000000000000050000000000000005ffffffffffffffffffffffffffff00000001"
    record = "0e00000001026100"
    assert batch.hex() == head + f"{kafka_records.crc32c(bytes.fromhex(body + record)):08x}" + body + record


def test_a_damaged_or_a_compressed_batch_is_an_error_and_the_end_of_a_transaction_is_no_message() -> None:
    batch = bytearray(kafka_records.encode([(None, b"a")], 5))

    with pytest.raises(ValueError, match="damaged"):
        list(kafka_records.decode(bytes(batch[:-2] + b"bb"), 0))
    with pytest.raises(ValueError, match="compressed"):
        list(kafka_records.decode(with_attributes(batch, 1), 0))
    assert list(kafka_records.decode(with_attributes(batch, 0x30), 0)) == []


def with_attributes(batch: bytearray, attributes: int) -> bytes:
    body = struct.pack(">h", attributes) + batch[kafka_records.HEAD.size + 2 :]
    return bytes(batch[:17]) + struct.pack(">I", kafka_records.crc32c(body)) + body


def replies(*answers: bytes) -> tuple[tuple[str, int], Callable[[], list[Answer]]]:
    """A stand-in for a broker that gives one answer to each connection; its address, and what it was asked."""
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[Answer] = []

    def serve() -> None:
        with server:
            for answer in answers:
                with server.accept()[0] as client:
                    (length,) = struct.unpack(">i", kafka_wire._read(client, 4))
                    asked.append(Answer(kafka_wire._read(client, length)))
                    client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> list[Answer]:
        thread.join()
        return asked

    return ("127.0.0.1", server.getsockname()[1]), end


def reply(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 0) + body


def metadata(*partitions: int, error: int = 0, host: str = "there", port: int = 9, leader: int = 1) -> bytes:
    broker = struct.pack(">i", 1) + text(host) + struct.pack(">i", port) + text(None)
    parts = [struct.pack(">hii", 0, number, leader) + items() + items() for number in partitions]
    topic = struct.pack(">h", error) + text("orders") + b"\0" + items(*parts)
    return reply(struct.pack(">i", 0) + items(broker) + text("id") + struct.pack(">i", 1) + items(topic))


def test_a_topic_is_ready_when_every_partition_has_a_leader() -> None:
    found = []
    for answer in (metadata(1, 0), metadata(0, leader=-1), metadata(error=Code.UNKNOWN_TOPIC_OR_PARTITION)):
        address, asked = replies(answer)
        found.append(kafka_topics.describe([address], "orders"))
        (question,) = asked()
        assert (question.number("h"), question.number("h")) == (Api.METADATA, 4)

    assert [topic.ready for topic in found] == [True, False, False]
    assert found[0].leaders == {0: ("there", 9), 1: ("there", 9)}


def listed(error: int) -> bytes:
    """The answer about the next offset of a partition."""
    part = struct.pack(">ihqq", 0, error, -1, 0)
    return reply(items(text("orders") + items(part)))


def test_a_new_topic_is_waited_for_until_its_leader_knows_that_it_is_one() -> None:
    found = []
    for error in (Code.NOT_LEADER_OR_FOLLOWER, Code.NONE):
        server, asked = replies(listed(error))
        about = metadata(0, host=server[0], port=server[1])
        address, described = replies(about, about, about)
        found.append(kafka_topics._is_usable([address], "orders"))
        asked()
        described()

    assert found == [False, True]


def test_an_error_of_the_broker_is_named() -> None:
    address, asked = replies(metadata(error=Code.UNKNOWN_TOPIC_OR_PARTITION))

    with pytest.raises(KafkaRefused, match="topic 'orders': UNKNOWN_TOPIC_OR_PARTITION"):
        kafka_topics.offsets([address], "orders", kafka_topics.LATEST)
    asked()
    assert "error 99" in str(KafkaRefused("x", 99))


def test_a_broker_that_does_not_answer_is_passed_over_and_none_is_an_error() -> None:
    address, asked = replies(metadata(0))
    nobody = ("127.0.0.1", free_port(["127.0.0.1"]))

    assert kafka_topics.brokers([nobody, address]) == {1: ("there", 9)}
    asked()
    with pytest.raises(ServerFailed, match=f"no broker answers: 127.0.0.1:{nobody[1]}"):
        kafka_topics.brokers([nobody])
    assert not kafka_local.answers(*nobody)


def test_something_that_does_not_speak_the_protocol_is_no_broker() -> None:
    address, asked = replies(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert not kafka_local.answers(*address)
    asked()


def test_nothing_to_send_is_an_error() -> None:
    with pytest.raises(ServerFailed, match="`values` is empty"):
        KafkaCluster([], 1, route=Route.LOCAL, end=lambda: None).send("orders", [])
