"""Real Cassandra: it answers, keeps what it acknowledged through kill -9, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epochal.testing import servers
from epochal.testing.servers import CassandraCluster, Route, ServerFailed, cql
from integration_tests.spark.waiting import wait_until

pytestmark = pytest.mark.spark


@contextlib.contextmanager
def session(cluster: CassandraCluster, **options: Any) -> Iterator[Any]:
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.io.libevreactor import LibevConnection
    from cassandra.policies import RoundRobinPolicy

    connected = Cluster(
        cluster.hosts,
        port=cluster.port,
        connection_class=LibevConnection,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy())},
        **options,
    )
    try:
        yield connected.connect()
    finally:
        connected.shutdown()


def is_there(pid: int) -> bool:
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_it_answers_cql_on_loopback(cassandra: CassandraCluster) -> None:
    assert cql.answers(cassandra.hosts[0], cassandra.port)
    with session(cassandra) as cluster:
        (row,) = cluster.execute("SELECT release_version FROM system.local")
    assert row.release_version.startswith("5.")


def test_what_it_acknowledged_survives_kill_9(mortal_cassandra: CassandraCluster) -> None:
    (node,) = mortal_cassandra.nodes
    pid, acknowledged = node.pid, 0
    with session(mortal_cassandra) as cluster:
        cluster.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        cluster.execute("CREATE TABLE k.rows (id int PRIMARY KEY)")
        insert = cluster.prepare("INSERT INTO k.rows (id) VALUES (?)")
        for number in range(200):
            cluster.execute(insert, [number])
            acknowledged += 1
        node.kill()
    assert not is_there(pid)
    assert not node.running

    node.start()

    assert node.pid != pid
    with session(mortal_cassandra) as cluster:
        assert len(list(cluster.execute("SELECT id FROM k.rows"))) == acknowledged


def test_a_paused_node_holds_its_connections_and_goes_on(mortal_cassandra: CassandraCluster) -> None:
    from cassandra import OperationTimedOut

    (node,) = mortal_cassandra.nodes
    with session(mortal_cassandra) as cluster:
        node.pause()
        with pytest.raises(OperationTimedOut):
            cluster.execute("SELECT release_version FROM system.local", timeout=0.5)
        assert node.running

        node.resume()

        assert list(cluster.execute("SELECT release_version FROM system.local", timeout=60))


@pytest.mark.local
def test_settings_passwords_and_a_kept_folder(tmp_path: Path) -> None:
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import NoHostAvailable

    settings = {"authenticator": "PasswordAuthenticator", "batch_size_fail_threshold": "1KiB"}
    login = PlainTextAuthProvider("cassandra", "cassandra")
    answer: list[str] = []
    with servers.cassandra(settings=settings, folder=tmp_path / "kept", tell=answer.append) as cluster:
        assert cluster.route is Route.LOCAL
        with pytest.raises(NoHostAvailable), session(cluster):
            pass
        with session(cluster, auth_provider=login) as connected:
            (row,) = connected.execute(
                "SELECT value FROM system_views.settings WHERE name = 'batch_size_fail_threshold'"
            )
            assert row.value == "1KiB"
        with pytest.raises(ServerFailed, match="a server already runs in"):
            servers.cassandra(folder=tmp_path / "kept")
        cluster.stop()  # and once more at the end of the block
        assert not cluster.nodes[0].running

    assert [line.split(":")[0] for line in answer] == ["starting 127.0.0.1"]
    assert (tmp_path / "kept" / "node1" / "data").exists()


def test_a_node_that_cannot_start_is_told_with_its_log() -> None:
    with pytest.raises(ServerFailed, match=r"ended with .* while it started") as raised:
        servers.cassandra(settings={"commitlog_sync": "sometimes"})

    assert "sometimes" in str(raised.value)


def serve(what: str, *, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "epochal.cli", "serve", what, "--json"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.matrix  # every server is ended so; by default Kafka and PostgreSQL are
def test_kill_9_of_whoever_serves_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    server = serve("cassandra", temporary=tmp_path)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    answer = json.loads(line)
    (pid,) = [node["pid"] for node in answer["nodes"]]
    assert cql.answers(answer["hosts"][0], answer["port"])
    assert any(tmp_path.iterdir())

    server.kill()
    _, said = server.communicate(timeout=60)

    wait_until(lambda: not is_there(pid), "the node to end")
    wait_until(lambda: not any(tmp_path.iterdir()), "its folder to be removed")
    assert "ready after" in said
