"""Servers in containers, without an engine: when that way is taken, and what HDFS's would run with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from epochal.testing import servers
from epochal.testing.servers import (
    HdfsCluster,
    Route,
    ServerFailed,
    containers,
    hdfs_docker,
    hdfs_local,
    hdfs_site,
    kafka_docker,
    postgres_docker,
)
from epochal.testing.servers.containers import Containers, Image
from epochal.testing.servers.hdfs_site import Ports
from epochal.testing.servers.options import HdfsOptions
from epochal.testing.servers.routes import HDFS, HDFS_IMAGE, KAFKA_IMAGE, POSTGRES_IMAGE, ROUTES
from scripts import docker_tests, local_image

PORTS = Ports(rpc=1, web=2, datanodes=((3, 4, 5),))


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (HDFS, HDFS_IMAGE, ROUTES):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Route]:
    """The ways that were taken; an engine answers."""
    routes: list[Route] = []

    def stand_in(route: Route) -> Any:
        def start(options: HdfsOptions, tell: object) -> HdfsCluster:
            routes.append(route)
            made: dict[str, Any] = {"namenode": None, "datanodes": (), "replication": 1, "end": lambda: None}
            return HdfsCluster("", "", route=route, **made)

        return start

    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    monkeypatch.setattr(containers, "elsewhere", lambda: None)
    monkeypatch.setattr(hdfs_docker, "start", stand_in(Route.DOCKER))
    monkeypatch.setattr(hdfs_local, "start", stand_in(Route.LOCAL))
    return routes


def test_an_engine_that_answers_is_taken(taken: list[Route], monkeypatch: pytest.MonkeyPatch) -> None:
    servers.hdfs()
    monkeypatch.setattr(containers, "engine_answers", lambda: False)
    servers.hdfs()

    assert taken == [Route.DOCKER, Route.LOCAL]


def test_a_folder_is_kept_by_processes_even_if_an_engine_answers(taken: list[Route], tmp_path: Path) -> None:
    servers.hdfs(folder=tmp_path)

    assert taken == [Route.LOCAL]


def test_an_engine_on_another_machine_is_passed_over(taken: list[Route], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "elsewhere", lambda: "there")
    servers.hdfs()

    assert taken == [Route.LOCAL]


def test_an_engine_on_another_machine_that_is_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROUTES, "docker")
    monkeypatch.setattr(containers, "elsewhere", lambda: "there")
    monkeypatch.setattr(Containers, "network", lambda _: pytest.fail("something was made"))

    with pytest.raises(ServerFailed, match=r"TESTCONTAINERS_HOST_OVERRIDE is there; EPOCHAL_SERVERS=local needs"):
        servers.hdfs()


def test_a_folder_that_containers_would_have_to_keep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROUTES, "docker")

    with pytest.raises(ServerFailed, match="containers cannot use a local folder; set EPOCHAL_SERVERS=local"):
        servers.hdfs(folder=tmp_path)


@pytest.mark.parametrize(
    ("image", "variable", "public"),
    [
        (hdfs_docker.IMAGE, HDFS_IMAGE, "apache/hadoop:3.5.0"),
        (kafka_docker.IMAGE, KAFKA_IMAGE, "apache/kafka:4.1.0"),
        (postgres_docker.IMAGE, POSTGRES_IMAGE, "postgres:17"),
    ],
)
def test_the_image_is_the_public_one_unless_another_is_named(
    image: Image, variable: str, public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert image.name == public
    monkeypatch.setenv(variable, "mine")
    assert image.name == "mine"
    assert docker_tests.available(image) == "mine"


def test_processes_in_containers_listen_everywhere_and_are_reached_on_loopback() -> None:
    files = hdfs_site.files(PurePosixPath("/data"), "127.0.0.1", PORTS, 1, {}, 0, listen="0.0.0.0")

    assert hdfs_site.text({"dfs.datanode.address": "0.0.0.0:3"}).splitlines()[2] in files["hdfs-site.xml"]
    for reached in ("dfs.namenode.rpc-address", "dfs.namenode.http-address", "dfs.datanode.hostname"):
        assert f"<name>{reached}</name><value>127.0.0.1" in files["hdfs-site.xml"]
    for bound in ("dfs.namenode.rpc-bind-host", "dfs.namenode.http-bind-host", "dfs.datanode.ipc.address"):
        assert f"<name>{bound}</name><value>0.0.0.0" in files["hdfs-site.xml"]
    assert "hdfs://127.0.0.1:1<" in files["core-site.xml"]


def run(script: str, folder: Path, fails: str = "") -> list[str]:
    """Run what a container runs, with a stand-in for `hdfs` that fails if it is asked for this; what it was asked."""
    said = folder / "said"
    command = folder / "hdfs"
    command.write_text(f'#!/bin/sh\necho "$*" >> {said}\ntest "$*" != "{fails}"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    subprocess.run(["sh", "-c", script], env=environment, check=not fails)
    return said.read_text().splitlines()


def test_the_namenode_is_formatted_at_its_first_start_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_docker, "HOME", PurePosixPath(tmp_path / "home"))
    formatting = "namenode -format -nonInteractive -force"

    assert run(hdfs_docker.script(None), tmp_path) == [formatting, "namenode"]
    (tmp_path / "said").unlink()
    assert run(hdfs_docker.script(None), tmp_path, fails=formatting) == [formatting]
    (tmp_path / "said").unlink()
    (tmp_path / "home" / "namenode" / "data" / "current").mkdir(parents=True)
    assert run(hdfs_docker.script(None), tmp_path) == ["namenode"]
    (tmp_path / "said").unlink()
    assert run(hdfs_docker.script(0), tmp_path) == ["datanode"]


def test_each_start_has_a_folder_of_its_own_for_pids(tmp_path: Path) -> None:
    answer = hdfs_docker.script(0).replace("exec hdfs datanode", 'echo "$HADOOP_PID_DIR"')
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = [subprocess.run(["sh", "-c", answer], env=environment, capture_output=True, check=True) for _ in range(2)]
    first, second = (Path(one.stdout.decode().strip()) for one in ran)

    assert first != second
    assert first.parent == second.parent == tmp_path


def test_the_local_image_starts_what_hadoops_own_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "some.jar"
    jar.touch()
    monkeypatch.setattr(local_image, "jars", lambda artifact, java: [jar])
    monkeypatch.setattr(local_image, "find_java", lambda: None)
    monkeypatch.setattr(local_image, "JAVA", Path("/bin/echo"))
    (tmp_path / "root" / "usr" / "local" / "bin").mkdir(parents=True)
    local_image.add_hdfs(tmp_path / "root")
    command = [str(tmp_path / "root" / "usr" / "local" / "bin" / "hdfs")]
    environment = {"HADOOP_CONF_DIR": "/conf", "HADOOP_OPTS": "-Da=b -Dc=d"}

    def said(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)

    classes = "-Da=b -Dc=d -cp /conf:/opt/hadoop-hdfs:/opt/hadoop-hdfs/*"
    assert said("namenode", "-format").stdout == f"{classes} org.apache.hadoop.hdfs.server.namenode.NameNode -format\n"
    assert said("datanode").stdout == f"{classes} org.apache.hadoop.hdfs.server.datanode.DataNode\n"
    assert (said("dfs").returncode, said("dfs").stderr) == (2, "hdfs: not here: dfs\n")
    assert (tmp_path / "root/opt/hadoop-hdfs/webapps/hdfs/WEB-INF/web.xml").exists()
    assert (tmp_path / "root/opt/hadoop-hdfs/some.jar").exists()
