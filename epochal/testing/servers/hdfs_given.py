"""An HDFS cluster that the user runs."""

from __future__ import annotations

import os
import re

from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.routes import HDFS, HDFS_WEB, Route

WEB_PORT = 9870
REPLICATION = 3  # HDFS's own default
PATIENCE = 10.0  # seconds; it should be running already


def connect(replication: int | None) -> HdfsCluster:
    """Check that it answers."""
    uri = os.environ[HDFS].rstrip("/")
    found = re.fullmatch(r"hdfs://([^/:]+)(:\d+)?", uri)
    if not found:
        raise ServerFailed(f"{HDFS} is {uri!r}; write hdfs://host:port")
    web = os.environ.get(HDFS_WEB, f"http://{found[1]}:{WEB_PORT}").rstrip("/")
    cluster = HdfsCluster(
        uri,
        web,
        namenode=None,
        datanodes=(),
        replication=replication or REPLICATION,
        route=Route.GIVEN,
        end=lambda: None,
        timeout=PATIENCE,
    )
    cluster.wait_until_ready(1)
    return cluster
