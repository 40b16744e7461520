"""Real PostgreSQL: it answers, keeps what it acknowledged through kill -9, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import psycopg
import pytest

from epochal.testing import servers
from epochal.testing.servers import PostgresServer, Route, postgres_programs
from epochal.testing.servers.ports import listens
from integration_tests.cassandra.test_servers import is_there, serve
from integration_tests.spark.waiting import wait_until


def test_what_it_acknowledged_survives_kill_9(mortal_postgres: PostgresServer) -> None:
    (node,) = mortal_postgres.nodes
    pid = node.pid
    with psycopg.connect(mortal_postgres.dsn, autocommit=True) as db:
        assert db.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')").fetchone() == (
            "on",
            "on",
        )
        db.execute("CREATE TABLE acknowledged AS SELECT 1 AS n")
    node.kill()
    assert not is_there(pid)

    node.start()

    with psycopg.connect(mortal_postgres.dsn, autocommit=True) as db:
        assert db.execute("SELECT n FROM acknowledged").fetchall() == [(1,)]
        db.execute("DROP TABLE acknowledged")


def test_kill_9_of_whoever_serves_leaves_no_process_and_no_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="epochal-serve-") as folder:
        Path(folder).chmod(0o711)  # the server may run as another user
        server = serve("postgres", temporary=Path(folder))
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.communicate()[1]
        answer = json.loads(line)
        (pid,) = [node["pid"] for node in answer["nodes"]]
        assert answer["route"] in (Route.LOCAL, Route.DOCKER)
        assert listens(answer["hosts"][0], answer["port"])
        server.kill()
        server.communicate()

        wait_until(lambda: not is_there(pid), "the server to end")
        wait_until(lambda: list(Path(folder).iterdir()) == [], "its folder to be removed")


@pytest.mark.local
def test_a_folder_keeps_its_data_and_its_port() -> None:
    with tempfile.TemporaryDirectory(prefix="epochal-kept-") as folder:
        with servers.postgres(folder=folder) as server, psycopg.connect(server.dsn) as db:
            port = server.port
            db.execute("CREATE TABLE kept AS SELECT 7 AS n")
        with servers.postgres(folder=folder) as server, psycopg.connect(server.dsn) as db:
            assert server.port == port
            assert db.execute("SELECT n FROM kept").fetchone() == (7,)


@pytest.mark.local
def test_where_none_is_installed_the_package_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    if (os.uname().sysname, os.uname().machine) != postgres_programs.FETCHED:
        pytest.skip("the package is for another kind of machine")
    monkeypatch.setattr(postgres_programs, "_installed", lambda: iter(()))
    with servers.postgres(own=True) as server, psycopg.connect(server.dsn) as db:
        row = db.execute("SHOW server_version").fetchone()

    assert row is not None
    assert row[0].startswith("17.")
