"""Real HDFS: it answers by both its doors, keeps what it was given through kill -9, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from hdfs import InsecureClient

from epochal.testing import servers
from epochal.testing.servers import HdfsCluster, Route, ServerFailed
from epochal.testing.servers.ports import listens
from integration_tests.cassandra.test_servers import is_there, serve
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_and_webhdfs_see_the_same_files(spark: SparkSession, hdfs: HdfsCluster) -> None:
    spark.range(7).write.json(f"{hdfs.uri}/seen")
    client = InsecureClient(hdfs.web, timeout=30)

    assert "_SUCCESS" in client.list("/seen")
    assert spark.read.json(f"{hdfs.uri}/seen").count() == 7


def test_what_was_written_is_there_after_every_process_was_killed(
    spark: SparkSession, mortal_hdfs: HdfsCluster
) -> None:
    for name, value in mortal_hdfs.settings.items():
        if "defaultFS" not in name:
            spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
    spark.range(7).write.json(f"{mortal_hdfs.uri}/seen")
    pids = [node.pid for node in mortal_hdfs.nodes]
    for node in mortal_hdfs.nodes:
        node.kill()
    assert not any(map(is_there, pids))
    assert not any(node.running for node in mortal_hdfs.nodes)

    for node in mortal_hdfs.nodes:
        node.start()
    mortal_hdfs.wait_until_ready()

    assert spark.read.json(f"{mortal_hdfs.uri}/seen").count() == 7
    assert not set(pids) & {node.pid for node in mortal_hdfs.nodes}


@pytest.mark.local
def test_a_kept_folder_holds_one_cluster_and_stays(tmp_path: Path) -> None:
    with servers.hdfs(folder=tmp_path / "kept") as cluster:
        assert cluster.route is Route.LOCAL
        InsecureClient(cluster.web, timeout=30).write("/kept", b"data")
        with pytest.raises(ServerFailed, match="a server already runs in"):
            servers.hdfs(folder=tmp_path / "kept")
    assert not any(node.running for node in cluster.nodes)

    with servers.hdfs(folder=tmp_path / "kept") as again:
        assert again.uri == cluster.uri
        with InsecureClient(again.web, timeout=30).read("/kept") as kept:
            assert kept.read() == b"data"


def test_a_process_that_cannot_start_is_told_with_its_log() -> None:
    with pytest.raises(ServerFailed, match=r"NameNode ended with .* while it started") as raised:
        servers.hdfs(settings={"dfs.namenode.rpc-address": "127.0.0.1:nonsense"})

    assert "nonsense" in str(raised.value)


@pytest.mark.matrix  # every server is ended so; by default Kafka and PostgreSQL are
def test_kill_9_of_whoever_serves_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    server = serve("hdfs", temporary=tmp_path)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    answer = json.loads(line)
    ports = [urlsplit(answer[door]).port or 0 for door in ("uri", "web")]
    pids = [node["pid"] for node in answer["nodes"]]
    assert all(listens("127.0.0.1", port) for port in ports)
    assert any(tmp_path.iterdir())

    server.kill()
    _, said = server.communicate(timeout=60)

    wait_until(lambda: not any(map(is_there, pids)), "its processes to end")
    wait_until(lambda: not any(listens("127.0.0.1", port) for port in ports), "its ports to close")
    wait_until(lambda: not any(tmp_path.iterdir()), "its folder to be removed")
    assert "ready after" in said
