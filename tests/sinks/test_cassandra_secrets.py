"""Who gets a password: hosts that the code names, and of those that a journal names the ones that were said to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from epochal import CassandraSink
from epochal.sinks.cassandra.cluster import connection
from epochal.sinks.cassandra.cluster.endpoint import CA_FILE, PASSWORD, TLS, USER, Endpoint
from epochal.sinks.config import trust
from epochal.txn.errors import Refused, StoreAway

SECRET = "hunter2"  # it is to be looked for
HOST = "db.example"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "me")
    monkeypatch.setenv(PASSWORD, SECRET)
    for name in (trust.HOSTS, TLS, CA_FILE):
        monkeypatch.delenv(name, raising=False)


def described(*hosts: str, tls: bool = True, cert_file: str | None = None) -> Endpoint:
    return Endpoint(contact_points=hosts or (HOST,), tls=tls, cert_file=cert_file, from_journal=True)


def test_hosts_that_the_code_names_get_the_password_of_the_environment() -> None:
    assert Endpoint(contact_points=(HOST,)).with_secrets().password == SECRET


def test_hosts_that_only_a_journal_names_get_nothing() -> None:
    found = described().with_secrets()

    assert (found.user, found.password, found.withheld) == (None, None, True)
    assert found.with_secrets() == found  # nor does an executor that has the same environment give it


@pytest.mark.parametrize("named", [HOST, "other,DB.example", f"{HOST}:9042"])
def test_hosts_that_were_named_get_it(named: str) -> None:
    with trust.trusting(named):
        assert described().with_secrets().password == SECRET
    assert described().with_secrets().password is None


@pytest.mark.parametrize("named", ["", "example", f"{HOST}:9043", f"{HOST}.evil"])
def test_others_are_not_taken_for_them(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(trust.HOSTS, named)

    assert described().with_secrets().password is None


def test_one_stranger_among_the_hosts_is_enough() -> None:
    with trust.trusting(HOST):
        assert described(HOST, "evil.example").with_secrets().withheld


def test_a_certificate_is_shown_to_nobody_else_either() -> None:
    with pytest.raises(Refused, match=f"only the journal names its hosts.*--trust {HOST}, or {trust.HOSTS}={HOST}"):
        described(cert_file="me.pem").with_secrets()


def test_a_journal_that_has_lost_its_tls_gets_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trust.HOSTS, HOST)
    with pytest.raises(Refused, match=f"without TLS, so the password would.*set {TLS}=off") as raised:
        described(tls=False).with_secrets()
    assert SECRET not in str(raised.value)
    monkeypatch.setenv(TLS, "off")

    assert described(tls=False).with_secrets().password == SECRET


def test_the_authority_that_the_environment_names_counts_and_wants_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trust.HOSTS, HOST)
    monkeypatch.setenv(CA_FILE, "mine.pem")
    found = described(tls=False).with_secrets()

    assert (found.tls, found.ca_file, found.password) == (True, "mine.pem", SECRET)


def test_without_secrets_a_journal_needs_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(USER)
    monkeypatch.delenv(PASSWORD)

    assert not described(tls=False).with_secrets().withheld


@contextmanager
def listening() -> Iterator[tuple[int, bytearray]]:
    """A port that takes down all it hears, and hangs up."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller:
                    caller.settimeout(0.5)
                    try:
                        heard.extend(caller.recv(65536))
                    except OSError:
                        continue

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard


def test_a_closed_port_is_told_with_the_sink_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StoreAway) as raised:
        CassandraSink("shop.orders", name="serving", port=port).open("1f0c9a2e")

    assert str(raised.value).startswith(f"sink 'serving': Cassandra at 127.0.0.1, port {port}: ConnectionRefusedError")
    assert str(raised.value).endswith("is the server up, and is this its client port (9042)?")


def test_an_unknown_host_is_told_with_the_sink_and_what_to_do() -> None:
    with pytest.raises(StoreAway) as raised:
        CassandraSink("shop.orders", contact_points=["nowhere.invalid"]).open("1f0c9a2e")

    assert str(raised.value) == (
        "sink 'cassandra': Cassandra at nowhere.invalid, port 9042: no such host; check contact_points, or the name "
        "service of this machine"
    )


def test_a_server_that_hangs_up_is_told_with_what_it_may_want(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 1.0)
    with listening() as (port, heard):
        sink = CassandraSink.from_description(CassandraSink("shop.orders", port=port, staging=str(tmp_path)).describe())
        with pytest.raises(StoreAway, match="does it require TLS"):
            sink.open("1f0c9a2e")

    assert heard
    assert SECRET.encode() not in heard


def test_commands_take_hosts_to_trust() -> None:
    for command in ("status", "audit", "recover", "roll", "gc"):
        done = subprocess.run(
            [sys.executable, "-m", "epochal.cli", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert "--trust HOST[,HOST]" in done.stdout
