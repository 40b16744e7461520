"""One HDFS for all tests of this folder that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.testing import servers
from epochal.testing.servers import HdfsCluster
from integration_tests.hdfs.remote import Remote


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """One DataNode, started once a run, or that of EPOCHAL_HDFS. Not to be killed."""
    with servers.hdfs() as cluster:
        yield cluster


@pytest.fixture
def remote(hdfs: HdfsCluster, tmp_path: Path) -> Remote:
    """A folder of the test's own on the cluster of all."""
    return Remote(hdfs, tmp_path)
