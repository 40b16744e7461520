"""The object store for tests, without starting it: options, routes, and one request at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from epochal.testing import servers
from epochal.testing.processes import in_threads
from epochal.testing.servers import ServerFailed, go_programs, s3_local, s3_moto
from epochal.testing.servers.options import S3_SERVERS, S3Options
from epochal.testing.servers.routes import ROUTES, S3
from epochal.testing.store_proxy import Faults, Request, StoreProxy
from epochal.txn.errors import OptionError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (S3, ROUTES):
        monkeypatch.delenv(variable, raising=False)


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionError) as told:
        servers.s3(bucket="No", server="minio", folder="kept", port=70_000, timeout=0)

    assert len(told.value.faults) == 5


@pytest.mark.parametrize(
    "given",
    ["127.0.0.1:9000", "http://127.0.0.1:9000", "http://me:secret@127.0.0.1:9000/b", "ftp://h/b", "http://h/a/b"],
)
def test_a_given_store_is_an_address_with_a_bucket_and_no_password(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(S3, given)

    with pytest.raises(ServerFailed, match="http://host:port/bucket") as told:
        servers.s3()
    assert "secret" not in str(told.value)


def test_a_given_store_must_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(S3, "http://127.0.0.1:9/bucket")
    monkeypatch.setattr("epochal.testing.servers.s3_given.PATIENCE", 0.0)

    with pytest.raises(ServerFailed, match="nothing listens"):
        servers.s3()


def test_without_moto_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_moto, "find_spec", lambda name: None)

    with pytest.raises(ServerFailed, match="pip install"):
        servers.s3()


def test_a_named_server_is_never_the_one_that_the_user_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[S3Options] = []
    monkeypatch.setenv(S3, "http://127.0.0.1:9/bucket")
    monkeypatch.setattr(s3_local, "start", lambda options, _: started.append(options))

    for server in S3_SERVERS:
        servers.s3(server=server)
    assert [options.server for options in started] == [*s3_local.KINDS]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def go(tmp_path: Path, script: str) -> str:
    """A stand-in for Go's tool chain."""
    path = tmp_path / "go"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_without_go_the_error_says_what_is_needed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_programs, "find_go", lambda: None)

    with pytest.raises(ServerFailed, match="Install it, or put the program into"):
        servers.s3(server="versitygw")
    assert not go_programs.VERSITYGW.folder.exists()


def test_a_program_is_built_once_and_of_many_builders_by_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    script = f'echo "$1 $2 $CGO_ENABLED" >> {made}; mkdir -p "$GOBIN"; : > "$GOBIN/versitygw"'
    monkeypatch.setattr(go_programs, "find_go", lambda: go(tmp_path, script))

    paths = in_threads([lambda: go_programs.built(go_programs.VERSITYGW, lambda _: None)] * 4)

    assert paths == [cache / "versitygw-1.8.0" / "versitygw"] * 4
    assert made.read_text() == "install github.com/versity/versitygw/cmd/versitygw@v1.8.0 0\n"


def test_a_build_that_fails_is_told_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_programs, "find_go", lambda: go(tmp_path, "echo requires go 1.25 >&2; exit 1"))

    with pytest.raises(ServerFailed, match=r"ended with 1: requires go 1\.25"):
        go_programs.built(go_programs.VERSITYGW, lambda _: None)
    assert [path.name for path in cache.iterdir()] == ["versitygw-1.8.0.lock"]


def test_containers_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROUTES, "docker")

    with pytest.raises(ServerFailed, match="not run in containers"):
        servers.s3()


def test_the_server_answers_one_request_at_a_time() -> None:
    s3_process = pytest.importorskip("epochal.testing.servers.s3_moto_process")
    running, most = [0], [0]
    gate = threading.Event()

    def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        gate.wait(0.01)
        running[0] -= 1
        return [b""]

    answer = s3_process.serial(application)
    in_threads([lambda: answer({}, print)] * 8)

    assert most == [1]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Request("PUT", "/b/k", {"X-Amz-Copy-Source": "/b/k"}, b""), "COPY"),
        (Request("PUT", "/b/k", {}, b""), "PUT"),
        (Request("GET", "/b/k", {}, b""), "GET"),
        (Request("GET", "/b?list-type=2", {}, b""), "LIST"),
        (Request("POST", "/b?delete", {}, b""), "DELETE many"),
        (Request("PUT", "/a/b/k", {"x-ms-copy-source": "http://h/a/b/k"}, b""), "COPY"),
        (Request("GET", "/a/b?restype=container&comp=list", {}, b""), "LIST"),
        (Request("POST", "/a/b?restype=container&comp=batch", {}, b""), "DELETE many"),
        (Request("PUT", "/b/k", {"x-goog-copy-source": "b/k"}, b""), "COPY"),
    ],
)
def test_requests_are_counted_by_what_they_ask_for(request_: Request, kind: str) -> None:
    assert request_.kind == kind


def test_a_proxy_without_a_store_behind_it_says_so_and_refuses_by_its_seed() -> None:
    request = Request("GET", "/b/k", {}, b"")

    def answers(seed: int) -> list[int]:
        with StoreProxy("http://127.0.0.1:9", Faults(refused=0.5), seed=seed) as proxy:
            return [answer[0] for _ in range(20) if (answer := proxy.answer(request))]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)
    assert 502 in answers(1)
