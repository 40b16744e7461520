"""Real HDFS: it answers by both its doors, keeps what it was given through kill -9, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hdfs import InsecureClient

from epochal.testing import servers
from epochal.testing.servers import HdfsCluster, Route, ServerFailed
from integration_tests.cassandra.test_servers import is_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_and_webhdfs_see_the_same_files(spark: SparkSession, hdfs: HdfsCluster) -> None:
    spark.range(7).write.json(f"{hdfs.uri}/seen")
    client = InsecureClient(hdfs.web, timeout=30)

    assert "_SUCCESS" in client.list("/seen")
    assert spark.read.json(f"{hdfs.uri}/seen").count() == 7


def test_what_was_written_is_there_after_every_process_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    with servers.hdfs(2, folder=tmp_path / "kept") as cluster:
        assert cluster.route is Route.LOCAL
        assert cluster.replication == 2
        for name, value in cluster.settings.items():
            if "defaultFS" not in name:
                spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
        spark.range(7).write.json(f"{cluster.uri}/seen")
        pids = [node.pid for node in cluster.nodes]
        for node in cluster.nodes:
            node.kill()
        assert not any(map(is_there, pids))

        for node in cluster.nodes:
            node.start()
        cluster.wait_until_ready()

        assert spark.read.json(f"{cluster.uri}/seen").count() == 7
        with pytest.raises(ServerFailed, match="a server already runs in"):
            servers.hdfs(2, folder=tmp_path / "kept")
    assert not any(node.running for node in cluster.nodes)
    assert (tmp_path / "kept" / "namenode" / "data").exists()


def test_a_process_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"ended with .* while it started") as told:
        servers.hdfs(settings={"dfs.namenode.rpc-address": "127.0.0.1:nonsense"}, folder=tmp_path)

    assert "nonsense" in str(told.value)
