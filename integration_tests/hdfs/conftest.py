"""One HDFS for all tests of this folder that do not harm it, and one for those that do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.testing import servers
from epochal.testing.servers import HdfsCluster
from integration_tests.hdfs.remote import Remote
from integration_tests.hdfs.streams import Stream
from integration_tests.spark.children import Children


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """One DataNode, started once a run, or that of EPOCHAL_HDFS. Not to be killed."""
    with servers.hdfs() as cluster:
        yield cluster


@pytest.fixture
def remote(hdfs: HdfsCluster, tmp_path: Path) -> Remote:
    """A folder of the test's own on the cluster of all."""
    return Remote(hdfs, tmp_path)


@pytest.fixture(scope="session")
def running_hdfs() -> Iterator[HdfsCluster]:
    with servers.hdfs(2) as cluster:
        assert cluster.replication == 2
        yield cluster


@pytest.fixture
def mortal_hdfs(running_hdfs: HdfsCluster) -> HdfsCluster:
    """Two DataNodes, every block on both; whatever an earlier test has killed runs again."""
    for node in running_hdfs.nodes:
        node.start()
    running_hdfs.wait_until_ready()
    return running_hdfs


@pytest.fixture
def stream(drivers: Children, mortal_hdfs: HdfsCluster, tmp_path: Path) -> Stream:
    """A stream onto the cluster that may be harmed."""
    return Stream(drivers, Remote(mortal_hdfs, tmp_path))
