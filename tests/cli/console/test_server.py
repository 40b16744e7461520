"""The server of ``epochal ui``: who may ask it, what it answers, and that it leaves the stream alone."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from epochal.cli.console.model import StreamSnapshot
from epochal.cli.console.server import AUDIT_HEADER, ConsoleServer
from epochal.cli.console.watch import READING, Reader, Watched, latest_of
from epochal.txn.errors import Refused
from tests.cli.console import gallery
from tests.cli.console.serving import serving
from tests.cli.scene import Scene, Scenery

ROOT = Path(__file__).parents[3]


def ask(
    server: ConsoleServer, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_the_page_and_its_data_are_there(tmp_path: Path) -> None:
    with serving(gallery.running(tmp_path), tmp_path / "nowhere") as server:
        status, headers, page = ask(server, "/")
        data = json.loads(ask(server, "/api/streams")[2])

    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<!DOCTYPE html>" in page
    assert [stream["error"] is None for stream in data["streams"]] == [True, False]
    assert data["streams"][0]["snapshot"]["done"] == 45


def test_every_answer_forbids_what_the_page_does_not_need(tmp_path: Path) -> None:
    with serving(tmp_path / "nowhere") as server:
        answers = [ask(server, path) for path in ("/", "/api/streams", "/nothing")]

    assert [status for status, _, _ in answers] == [200, 200, 404]
    for _, headers, _ in answers:
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Access-Control-Allow-Origin"] is None
        assert headers["Server"].strip() == "epochal"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"])
def test_a_host_that_is_not_this_server_is_refused_so_that_no_other_site_can_read_it(tmp_path: Path, host: str) -> None:
    with serving(tmp_path / "nowhere") as server:
        for path in ("/", "/api/streams"):
            status, _, body = ask(server, path, Host=host.format(port=server.port))

            assert status == 421
            assert "nowhere" not in body
        assert ask(server, "/", Host=f"localhost:{server.port}")[0] == 200


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    with serving(tmp_path / "nowhere") as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", server.port))


def test_an_audit_runs_when_the_page_asks_for_it(tmp_path: Path) -> None:
    with serving(gallery.running(tmp_path)) as server:
        own = f"http://127.0.0.1:{server.port}"
        status, _, body = ask(server, "/api/audit/0", method="POST", Origin=own, **{AUDIT_HEADER: "audit"})
        done = wait_for(lambda: audit_of(server)["state"] == "done" and audit_of(server))

    assert (status, json.loads(body)["state"]) == (202, "running")
    assert [sink["name"] for sink in done["result"]["sinks"]] == ["archive", "lake", "serving"]
    assert done["result"]["through"] == 45


def audit_of(server: ConsoleServer) -> Any:
    return json.loads(ask(server, "/api/streams")[2])["streams"][0]["audit"]


def test_an_audit_that_fails_says_why(tmp_path: Path) -> None:
    with serving(tmp_path / "nowhere") as server:
        own = f"http://127.0.0.1:{server.port}"
        ask(server, "/api/audit/0", method="POST", Origin=own, **{AUDIT_HEADER: "audit"})
        failed = wait_for(lambda: audit_of(server)["state"] == "failed" and audit_of(server))

    assert "there is no such folder" in failed["error"]


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({}, "/api/audit/0", 403),
        ({"Origin": "http://evil.example", AUDIT_HEADER: "audit"}, "/api/audit/0", 403),
        ({"Origin": "http://127.0.0.1:{port}"}, "/api/audit/0", 403),  # a form can send this much
        ({"Origin": "null", AUDIT_HEADER: "audit"}, "/api/audit/0", 403),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/api/audit/7", 404),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, f"/api/audit/{'7' * 5000}", 400),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/", 405),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/api/audit/-1", 400),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/api/audit/%30", 400),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/api/audit/", 400),
        ({"Origin": "http://127.0.0.1:{port}", AUDIT_HEADER: "audit"}, "/api/audit/0/../0", 405),
    ],
)
def test_nothing_but_the_page_can_start_an_audit(
    tmp_path: Path, headers: dict[str, str], path: str, status: int
) -> None:
    with serving(tmp_path / "nowhere") as server:
        sent = {name: value.format(port=server.port) for name, value in headers.items()}

        assert ask(server, path, method="POST", **sent)[0] == status
        assert audit_of(server) is None


HOSTILE = {
    "nothing like a request": b"\x00\xff\x16\x03 gibberish\r\n\r\n",
    "an old request without headers": b"GET /\r\n\r\n",
    "a path out of the folder": b"GET /../../etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "percent signs that encode nothing": b"GET /%zz%00%ff HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "another site's address": b"GET http://evil.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "an endless address": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "too many headers": b"GET / HTTP/1.1\r\nHost: {host}\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    "a body that is announced and not sent": (
        b"POST /api/audit/0 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9999999999\r\n\r\n"
    ),
    "a length that is none": b"POST /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: many\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: {host}\r\n\r\n",
}


def answer_to(client: socket.socket, sent: bytes) -> bytes:
    try:
        client.sendall(sent)
        return client.recv(65536)
    except (ConnectionResetError, BrokenPipeError):  # it has not read all of it
        return b"closed"


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_request_is_refused_without_a_word_on_the_terminal(
    tmp_path: Path, sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "nowhere") as server:
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as client:
            answer = answer_to(client, sent.replace(b"{host}", f"127.0.0.1:{server.port}".encode()))
        still_answers = ask(server, "/api/streams")[0]
        audited = audit_of(server)

    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert answer
    assert still_answers == 200
    assert audited is None
    assert capfd.readouterr().err == ""


def test_a_client_that_goes_away_says_nothing_on_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reset = struct.pack("ii", 1, 0)  # closing sends a reset
    with serving(tmp_path / "nowhere") as server:
        for _ in range(5):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
            client.close()
        assert ask(server, "/api/streams")[0] == 200

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_supported(tmp_path: Path, method: str) -> None:
    with serving(tmp_path / "nowhere") as server:
        assert ask(server, "/api/audit/0", method=method)[0] == 501


def test_looking_and_auditing_change_no_file(tmp_path: Path) -> None:
    checkpoints = [gallery.running(tmp_path), gallery.held(tmp_path)]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with serving(*checkpoints) as server:
        own = f"http://127.0.0.1:{server.port}"
        ask(server, "/")
        ask(server, "/api/audit/0", method="POST", Origin=own, **{AUDIT_HEADER: "audit"})
        wait_for(lambda: audit_of(server)["state"] == "done")

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


class Counted:
    """A reading that can be held, and is counted."""

    def __init__(self, result: StreamSnapshot) -> None:
        self.result = result
        self.begun = 0
        self.at_once = 0
        self.most_at_once = 0
        self.go = threading.Event()
        self.go.set()

    def __call__(self) -> StreamSnapshot:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.go.wait(30)
        self.at_once -= 1
        return self.result


@pytest.fixture
def reading(scene: Scene) -> Counted:
    scene.run(scene.driver(), 1)
    return Counted(Reader(str(scene.checkpoint), None)())


def test_many_who_ask_at_once_cause_one_reading(reading: Counted) -> None:
    watched = Watched("orders", reading)
    reading.go.clear()
    threads = [threading.Thread(target=watched.latest, kwargs={"wait": 10.0}) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: reading.begun)
    reading.go.set()
    for thread in threads:
        thread.join()
    watched.latest(wait=10.0)  # within the same second

    assert (reading.begun, reading.most_at_once) == (1, 1)


def test_a_reading_is_repeated_after_a_second(reading: Counted) -> None:
    watched = Watched("orders", reading)
    began = time.monotonic()
    watched.latest(wait=10.0)

    wait_for(lambda: watched.latest(wait=10.0).snapshot is not None and reading.begun == 2)

    assert time.monotonic() - began >= 1.0


def test_while_a_store_takes_long_the_last_result_is_shown_and_no_second_reading_begins(reading: Counted) -> None:
    watched = Watched("orders", reading)
    reading.go.clear()

    first = watched.latest(wait=0.01)
    reading.go.set()
    second = wait_for(lambda: (found := watched.latest(wait=10.0)).snapshot and found)
    reading.go.clear()
    third = wait_for(lambda: (found := watched.latest(wait=0.01)).snapshot and reading.begun == 2 and found)
    reading.go.set()

    assert (first.snapshot, first.error) == (None, READING)
    assert second.error == third.error == ""
    assert third.snapshot is second.snapshot
    assert reading.most_at_once == 1


def test_a_store_that_takes_long_delays_no_other_stream(reading: Counted) -> None:
    stuck = Counted(reading.result)
    stuck.go.clear()

    slow, quick = latest_of([Watched("slow", stuck), Watched("quick", reading)], wait=2.0)
    stuck.go.set()

    assert (slow.snapshot, slow.error) == (None, READING)
    assert quick.snapshot is not None


def test_a_slow_reading_is_repeated_seldom(reading: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def slow() -> StreamSnapshot:
        now[0] += 3.0
        return reading()

    watched = Watched("orders", slow)
    watched.latest(wait=10.0)
    for _ in range(29):
        now[0] += 1.0
        watched.latest(wait=10.0)
    before = reading.begun
    now[0] += 1.5
    watched.latest(wait=10.0)

    assert (before, reading.begun) == (1, 2)


def test_a_stream_that_comes_back_is_read_again(scene: Scene) -> None:
    read = Reader(str(scene.checkpoint), None)
    with pytest.raises(Refused, match="epochal has not run on this checkpoint"):
        read()
    scene.run(scene.driver(), 2)

    assert read().done == 1
    scene.run(scene.driver(), 3)
    assert read().done == 2


def test_a_checkpoint_that_was_replaced_by_another_querys_is_read_afresh(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    read = Reader(str(scene.checkpoint), None)
    read()
    shutil.rmtree(scene.checkpoint)
    with pytest.raises(Refused, match="there is no such folder"):
        read()
    other = Scenery(scene.root, query="another")
    other.run(other.driver(other.target("other")), 1)

    assert read().lineage == "another"


def test_a_stream_that_goes_on_as_a_new_one_is_followed(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    read = Reader(str(scene.checkpoint), None)
    first = read().lineage
    (scene.checkpoint / "commits" / "1").unlink()  # restored from an older copy
    scene.driver(new="1f0c9a2e@1")
    read()  # it may still see how the old one was closed

    assert read().lineage == f"{first}~2"


def test_the_command_serves_until_it_is_told_to_stop(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    child = subprocess.Popen(
        [sys.executable, "-m", "epochal.cli", "ui", "--port", "0", "--json", str(scene.checkpoint)],
        cwd=ROOT,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"]
        with closing(http.client.HTTPConnection(url.split("/")[2], timeout=30)) as connection:
            connection.request("GET", "/api/streams")
            data = json.loads(connection.getresponse().read())
        child.send_signal(signal.SIGINT)

        assert child.wait(30) == 0
    finally:
        child.kill()
        child.communicate()
    assert data["streams"][0]["snapshot"]["done"] == 1


def test_a_port_that_is_in_use_is_said(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    with serving(scene.checkpoint) as server:
        answer = scene.command("ui", "--port", str(server.port))

    assert answer.code == 2
    assert f"port {server.port}" in answer.err
    assert "Choose another one" in answer.err
