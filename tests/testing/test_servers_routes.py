"""Which way to a server is taken, and what can be asked for; nothing is started."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.testing import servers
from epochal.testing.servers import Route, ServerFailed, cassandra_docker, cassandra_local, containers, routes
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.options import CassandraOptions
from epochal.testing.servers.routes import CASSANDRA, CASSANDRA_IMAGE, ROUTES, Endpoint, choose, endpoint, parse
from epochal.txn.errors import OptionError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (CASSANDRA, CASSANDRA_IMAGE, ROUTES):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db", Endpoint(("db",), 9042)),
        ("127.0.0.1:19042", Endpoint(("127.0.0.1",), 19042)),
        ("a,b,c:9142", Endpoint(("a", "b", "c"), 9142)),
        ("a:9142, b:9142", Endpoint(("a", "b"), 9142)),
        ("[::1]:9142", Endpoint(("::1",), 9142)),
        ("[::1]", Endpoint(("::1",), 9042)),
    ],
)
def test_an_endpoint_is_hosts_and_one_port(text: str, expected: Endpoint) -> None:
    assert parse(text, 9042) == expected


@pytest.mark.parametrize("text", ["", ":9042", "a,,b", "a:", "a:x", "a:0", "a:70000", "a:1,b:2", "[]:9042", "a:1:2"])
def test_a_malformed_endpoint_is_reported_with_the_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CASSANDRA, text)

    with pytest.raises(ServerFailed, match=f"{CASSANDRA} is .*write host:port"):
        endpoint(CASSANDRA, 9042)


def test_a_given_endpoint_comes_first_then_an_engine_then_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(CASSANDRA, own=False, engine_answers=lambda: False) is Route.LOCAL
    assert choose(CASSANDRA, own=False, engine_answers=lambda: True) is Route.DOCKER
    monkeypatch.setenv(CASSANDRA, "127.0.0.1:9042")
    assert choose(CASSANDRA, own=False, engine_answers=lambda: pytest.fail("asked")) is Route.GIVEN


def test_who_needs_a_server_of_their_own_is_not_sent_to_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CASSANDRA, "127.0.0.1:9042")

    assert choose(CASSANDRA, own=True, engine_answers=lambda: False) is Route.LOCAL


@pytest.mark.parametrize("forced", ["local", "docker"])
def test_a_forced_way_asks_nobody(forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CASSANDRA, "127.0.0.1:9042")
    monkeypatch.setenv(ROUTES, forced)

    assert choose(CASSANDRA, own=False, engine_answers=lambda: pytest.fail("asked")) == forced


def test_a_way_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROUTES, "cloud")

    with pytest.raises(ServerFailed, match="EPOCHAL_SERVERS is 'cloud'; it must be docker or local"):
        choose(CASSANDRA, own=False, engine_answers=lambda: False)


def test_the_given_server_is_used_and_cannot_be_killed(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CASSANDRA, f"127.0.0.1:{listener}")

    with servers.cassandra() as cluster:
        assert (cluster.hosts, cluster.port, cluster.owned) == (["127.0.0.1"], listener, False)
        (node,) = cluster.nodes
        assert node.running
        for step in (node.kill, node.pause, node.resume, node.start, node.stop):
            with pytest.raises(ServerFailed, match="was given by EPOCHAL_CASSANDRA"):
                step()


def test_a_given_server_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv(CASSANDRA, f"127.0.0.1:{port}")
    monkeypatch.setattr("epochal.testing.servers.cassandra_given.PATIENCE", 0.0)

    with pytest.raises(ServerFailed, match=f"nothing listens at EPOCHAL_CASSANDRA=127.0.0.1:{port}"):
        servers.cassandra()


@pytest.mark.parametrize(
    "special", [{"nodes": 3}, {"settings": {"a": 1}}, {"port": 9142}, {"folder": "f"}, {"java_options": ["-ea"]}]
)
def test_every_wish_makes_it_a_server_of_ones_own(
    special: dict[str, object], listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CASSANDRA, f"127.0.0.1:{listener}")
    monkeypatch.setattr(containers, "engine_answers", lambda: False)
    asked: list[CassandraOptions] = []

    def start(options: CassandraOptions, tell: object) -> CassandraCluster:
        asked.append(options)
        return CassandraCluster([], 1, route=Route.LOCAL, end=lambda: None)

    monkeypatch.setattr(cassandra_local, "start", start)

    assert servers.cassandra(**special).route is Route.LOCAL  # type: ignore[arg-type]
    assert len(asked) == 1


def test_a_folder_is_kept_by_processes_even_if_an_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    made = CassandraCluster([], 1, route=Route.LOCAL, end=lambda: None)
    monkeypatch.setattr(cassandra_local, "start", lambda options, tell: made)

    assert servers.cassandra(folder=tmp_path) is made


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        servers.cassandra(nodes=2, port=70_000, timeout=0)

    assert len(raised.value.faults) == 3


def test_settings_of_a_container_name_files_where_they_are_inside(tmp_path: Path) -> None:
    files: dict[Path, str] = {}
    store = tmp_path / "keys.p12"

    carried = containers.carried({"a": {"keystore": store, "more": [store, 1]}, "b": "text"}, files)

    inside = f"{containers.FILES}/0-keys.p12"
    assert carried == {"a": {"keystore": inside, "more": [inside, 1]}, "b": "text"}
    assert files == {store: inside}


def test_the_image_is_the_public_one_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cassandra_docker.IMAGE.name == "cassandra:5.0"
    monkeypatch.setenv(CASSANDRA_IMAGE, "mine")
    assert cassandra_docker.IMAGE.name == "mine"


def test_the_names_that_are_documented_are_there() -> None:
    assert sorted(servers.__all__) == [
        "CassandraCluster",
        "HdfsCluster",
        "KafkaCluster",
        "Node",
        "PostgresServer",
        "Route",
        "S3Store",
        "ServerFailed",
        "ZooKeeperCluster",
        "cassandra",
        "hdfs",
        "kafka",
        "postgres",
        "s3",
        "zookeeper",
    ]
    assert routes.CASSANDRA_PORT == 9042
