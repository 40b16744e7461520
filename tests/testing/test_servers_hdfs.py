"""HDFS for tests, without starting it: options, settings, ports, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from epochal.testing import servers
from epochal.testing.servers import HdfsCluster, Route, ServerFailed, hdfs_given, hdfs_local, hdfs_site
from epochal.testing.servers.artifacts import HDFS as JARS
from epochal.testing.servers.hdfs_site import Ports
from epochal.testing.servers.options import HdfsOptions
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.routes import HDFS, HDFS_WEB
from epochal.txn.errors import OptionError

PORTS = Ports(rpc=1, web=2, datanodes=((3, 4, 5), (6, 7, 8)))


def settings(file: Path) -> dict[str, str]:
    found = ElementTree.parse(file).getroot().findall("property")
    return {prop.findtext("name", ""): prop.findtext("value", "") for prop in found}


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        servers.hdfs(4, port=70_000, timeout=0)

    assert len(raised.value.faults) == 3


@pytest.mark.parametrize(
    ("datanodes", "replication", "replicas"), [(1, None, 1), (2, None, 2), (3, None, 2), (3, 3, 3)]
)
def test_there_are_as_many_replicas_as_fit(datanodes: int, replication: int | None, replicas: int) -> None:
    assert HdfsOptions(datanodes=datanodes, replication=replication).replicas == replicas
    with pytest.raises(OptionError, match="it can be from 1 to datanodes="):
        HdfsOptions(datanodes=datanodes, replication=datanodes + 1)


def test_each_process_has_settings_of_its_own_and_what_is_given_wins(tmp_path: Path) -> None:
    given = {"dfs.namenode.handler.count": 3, "a.b": "<&>"}
    first = hdfs_site.write(tmp_path, "127.0.0.1", PORTS, 2, given, None)
    second = hdfs_site.write(tmp_path, "127.0.0.1", PORTS, 2, given, 1)

    assert first != second
    namenode, datanode = settings(first / "hdfs-site.xml"), settings(second / "hdfs-site.xml")
    assert namenode["dfs.namenode.rpc-address"] == datanode["dfs.namenode.rpc-address"] == "127.0.0.1:1"
    assert (datanode["dfs.datanode.address"], datanode["dfs.datanode.ipc.address"]) == ("127.0.0.1:6", "127.0.0.1:8")
    assert "dfs.datanode.address" not in namenode
    assert (namenode["dfs.namenode.handler.count"], namenode["a.b"]) == ("3", "<&>")
    assert settings(first / "core-site.xml")["fs.defaultFS"] == "hdfs://127.0.0.1:1"
    assert (first / "webapps" / "hdfs" / "WEB-INF" / "web.xml").exists()


def test_a_folder_that_was_used_before_keeps_its_ports(tmp_path: Path) -> None:
    first = hdfs_local._ports(tmp_path, HdfsOptions(datanodes=2))

    assert hdfs_local._ports(tmp_path, HdfsOptions(datanodes=2)) == first
    assert len(set(first.all)) == 8
    with pytest.raises(ServerFailed, match="datanodes=2"):
        hdfs_local._ports(tmp_path, HdfsOptions(datanodes=1))
    with pytest.raises(ServerFailed, match=f"at port {first.rpc}"):
        hdfs_local._ports(tmp_path, HdfsOptions(datanodes=2, port=9))


def test_a_port_that_is_asked_for_is_the_namenodes(tmp_path: Path) -> None:
    port = free_port(["127.0.0.1"])

    assert hdfs_local._ports(tmp_path, HdfsOptions(port=port)).rpc == port


def test_one_that_is_given_is_taken_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    monkeypatch.setenv(HDFS, "hdfs://there:8020/")
    monkeypatch.setattr(HdfsCluster, "wait_until_ready", lambda _, datanodes=None: asked.append(datanodes))
    found = servers.hdfs()

    assert (found.uri, found.web, found.route) == ("hdfs://there:8020", "http://there:9870", Route.GIVEN)
    assert not found.owned
    assert asked == [1]
    assert found.settings["spark.hadoop.dfs.replication"] == "3"
    monkeypatch.setenv(HDFS_WEB, "http://door:1234/")
    assert servers.hdfs().web == "http://door:1234"


def test_one_that_is_given_badly_or_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HDFS, "there:8020")
    with pytest.raises(ServerFailed, match=r"EPOCHAL_HDFS is 'there:8020'; write hdfs://host:port"):
        servers.hdfs()
    monkeypatch.setenv(HDFS, "hdfs://127.0.0.1:1")
    monkeypatch.setenv(HDFS_WEB, "http://127.0.0.1:1")
    monkeypatch.setattr(hdfs_given, "PATIENCE", 0.0)
    with pytest.raises(ServerFailed, match="HDFS is not ready"):
        servers.hdfs()


def test_its_jars_are_three_of_one_version() -> None:
    assert [name for _, name, _ in JARS.parts] == ["hadoop-hdfs", "hadoop-common", "hadoop-hdfs-client"]
    assert len({version for _, _, version in JARS.parts}) == 1
    assert JARS.folder.name == f"hadoop-hdfs-{JARS.version}"
