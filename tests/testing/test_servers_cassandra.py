"""What a node is started with, and how it is asked whether it is up; without Java."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from epochal.spark_plugins.java_command import major_version
from epochal.testing.servers import ServerFailed, cassandra_java, cassandra_local, cassandra_yaml, cql, java, ports
from epochal.testing.servers.cassandra_yaml import NodePlace
from epochal.testing.servers.cql import Opcode
from epochal.testing.servers.java import Java

PLACE = NodePlace(
    number=0,
    nodes=3,
    listen="127.0.0.1",
    seed="127.0.0.1",
    storage_port=7000,
    port=9042,
    folder="/data",
    rpc="127.0.0.1",
)


def test_acknowledged_rows_survive_a_kill_by_default() -> None:
    assert cassandra_yaml.settings(PLACE, {})["commitlog_sync"] == "batch"


def test_given_settings_win_and_may_be_nested() -> None:
    given = {"authenticator": "PasswordAuthenticator", "client_encryption_options": {"keystore": Path("/k.p12")}}

    written = json.loads(cassandra_yaml.text(cassandra_yaml.settings(PLACE, {**given, "num_tokens": 4})))

    assert written["authenticator"] == "PasswordAuthenticator"
    assert written["num_tokens"] == 4
    assert written["client_encryption_options"] == {"keystore": "/k.p12"}
    assert written["native_transport_port"] == 9042


def test_a_setting_that_no_file_can_hold_is_an_error() -> None:
    with pytest.raises(TypeError, match="cannot hold"):
        cassandra_yaml.text({"key": object()})


def test_tokens_of_three_nodes_share_the_ring_evenly() -> None:
    places = [
        NodePlace(number=n, nodes=3, listen="a", seed="a", storage_port=1, port=2, folder="/", rpc="a")
        for n in range(3)
    ]
    tokens = [int(str(cassandra_yaml.settings(place, {})["initial_token"])) for place in places]

    assert tokens[1] - tokens[0] == tokens[2] - tokens[1] == 2**64 // 3
    assert all(-(2**63) < token < 2**63 for token in tokens)


@pytest.mark.parametrize(
    ("options", "tls", "certificates"),
    [
        ({}, False, False),
        ({"enabled": True}, True, False),
        ({"enabled": True, "optional": True}, False, False),
        ({"enabled": True, "require_client_auth": True}, True, True),
        ({"enabled": True, "require_client_auth": "optional"}, True, False),
    ],
)
def test_how_to_knock_is_read_from_the_settings(options: dict[str, object], tls: bool, certificates: bool) -> None:
    given = {"client_encryption_options": options}

    assert cassandra_yaml.has_tls(given) is tls
    assert cassandra_yaml.asks_for_certificates(given) is certificates


@pytest.mark.parametrize(("major", "allowed"), [(11, False), (17, False), (21, True)])
def test_the_command_allows_a_security_manager_only_where_java_must_be_asked(major: int, allowed: bool) -> None:
    jars = [Path("/jars/a.jar"), Path("/jars/com.x_jamm-0.4.0.jar")]

    command = cassandra_java.command(Java(Path("/bin/java"), major), jars, Path("/data"), nodes=1, options=["-Xmx2g"])

    assert ("-Djava.security.manager=allow" in command) is allowed
    assert "-javaagent:/jars/com.x_jamm-0.4.0.jar" in command
    assert "-Dcassandra.config=file:///data/cassandra.yaml" in command
    assert command.index("-Xmx2g") > command.index("-Xmx1g")  # the last one counts
    assert command[-3:] == ["-cp", "/jars/a.jar:/jars/com.x_jamm-0.4.0.jar", cassandra_java.MAIN]


def fake_java(home: Path, version: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return command


def test_java_home_comes_first_then_path_and_what_is_too_new_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fake_java(tmp_path / "new", "25.0.1")
    good = fake_java(tmp_path / "good", "17.0.15")
    other = fake_java(tmp_path / "other", "11.0.2")
    monkeypatch.setattr(java, "USUAL_PLACES", ())
    monkeypatch.setenv("PATH", f"{good.parent}:/usr/bin:/bin")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert java.find_java() == Java(other, 11)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert java.find_java() == Java(good, 17)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "USUAL_PLACES", (f"{tmp_path}/o*",))
    assert java.find_java() == Java(other, 11)
    monkeypatch.setattr(java, "USUAL_PLACES", ())
    with pytest.raises(ServerFailed, match=f"Cassandra needs Java 17 .*{new} is Java 25") as raised:
        java.find_java()
    assert "\n" not in str(raised.value)


def test_no_java_at_all_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "USUAL_PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ServerFailed, match="found none in JAVA_HOME, PATH and the usual places"):
        java.find_java()


def test_old_versions_are_read_right(tmp_path: Path) -> None:
    assert major_version(fake_java(tmp_path, "1.8.0_392")) == 8
    assert major_version(Path("/bin/true")) is None


def test_a_free_port_is_none_that_outgoing_connections_get() -> None:
    port = ports.free_port(["127.0.0.1"])

    assert ports.LOWEST <= port < ports._first_outgoing()
    with socket.create_server(("127.0.0.1", port)):
        assert not ports.is_free("127.0.0.1", port)


def test_a_folder_remembers_its_ports_and_how_many_nodes_it_has(tmp_path: Path) -> None:
    first = cassandra_local._ports(tmp_path, ["127.0.0.1"], None)

    assert cassandra_local._ports(tmp_path, ["127.0.0.1"], None) == first
    other = ports.free_port(["127.0.0.1"], first)
    assert cassandra_local._ports(tmp_path, ["127.0.0.1"], other) == (other, first[1])
    with pytest.raises(ServerFailed, match="holds a cluster with nodes=1, not 3"):
        cassandra_local._ports(tmp_path, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], None)


def test_a_port_that_is_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"127.0.0.1:{port} is in use"):
            cassandra_local._ports(tmp_path, ["127.0.0.1"], port)


def replies(*opcodes: int) -> tuple[int, Callable[[], list[int]]]:
    """A stand-in for a server that gives these answers to one client; its port, and what it was asked."""
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[int] = []

    def serve() -> None:
        with server, server.accept()[0] as client:
            for opcode in opcodes:
                *_, request, length = cql.HEAD.unpack(cql._read(client, cql.HEAD.size))
                cql._read(client, length)
                asked.append(request)
                client.sendall(cql.HEAD.pack(0x84, 0, 0, opcode, 3) + b"abc")

    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> list[int]:
        thread.join()
        return asked

    return server.getsockname()[1], end


@pytest.mark.parametrize(
    ("opcodes", "log_in", "up"),
    [
        ([Opcode.READY, Opcode.RESULT], False, True),
        ([Opcode.READY, Opcode.ERROR], False, False),
        ([Opcode.ERROR], False, False),
        ([Opcode.AUTHENTICATE], False, True),
        ([Opcode.AUTHENTICATE, Opcode.ERROR], True, False),
        ([Opcode.AUTHENTICATE, Opcode.AUTH_SUCCESS, Opcode.RESULT], True, True),
        ([Opcode.READY], False, False),  # it hangs up
    ],
)
def test_a_server_is_up_when_it_answers_a_query(opcodes: list[int], log_in: bool, up: bool) -> None:
    port, asked = replies(*opcodes)

    assert cql.answers("127.0.0.1", port, log_in=log_in) is up
    assert asked()[0] == Opcode.STARTUP


def test_nobody_there_is_not_up() -> None:
    port = ports.free_port(["127.0.0.1"])

    assert not cql.answers("127.0.0.1", port)
    assert not ports.listens("127.0.0.1", port)


def test_the_query_and_its_consistency_are_sent() -> None:
    body = cql._query("SELECT 1", cql.Consistency.ALL)

    assert body == struct.pack(">I", 8) + b"SELECT 1" + struct.pack(">HB", 5, 0)


def test_a_port_at_which_nobody_speaks_is_no_server_of_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.close()

        hangs_up = threading.Thread(target=hang_up)
        hangs_up.start()
        assert not cql.speaks_tls("127.0.0.1", port)
        hangs_up.join()
    assert not cql.speaks_tls("127.0.0.1", port)
