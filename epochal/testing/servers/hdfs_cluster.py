"""HDFS as tests use it: a NameNode, DataNodes, and their status."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from epochal.testing.servers.cluster import Node, Served
from epochal.testing.servers.hdfs_site import client
from epochal.testing.servers.routes import Route
from epochal.testing.servers.waiting import wait_until

LOOK = 5.0  # seconds for the NameNode to answer one request


class HdfsCluster(Served):
    """One NameNode, one to three DataNodes. Leaving the block stops those that were started for it."""

    def __init__(
        self,
        uri: str,
        web: str,
        *,
        namenode: Node | None,
        datanodes: Sequence[Node],
        replication: int,
        route: Route,
        end: Callable[[], None],
        timeout: float = 120.0,
    ) -> None:
        super().__init__(route, end, timeout)
        self.uri = uri  # hdfs://host:port
        self.web = web  # http://host:port, of WebHDFS
        self.replication = replication
        self.datanodes = tuple(datanodes)
        self._namenode = namenode

    @property
    def namenode(self) -> Node:
        assert self._namenode is not None, "a cluster that the user runs has no processes here"
        return self._namenode

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every process that was started here."""
        return ((self._namenode,) if self._namenode else ()) + self.datanodes

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings for Spark: the cluster as default file system, and its replication."""
        return {f"spark.hadoop.{name}": value for name, value in client(self.uri, self.replication).items()}

    def wait_until_ready(self, datanodes: int | None = None) -> None:
        """Wait until `datanodes` DataNodes are live (default: all) and the NameNode has left safe mode."""
        wanted = len(self.datanodes) if datanodes is None else datanodes
        seen: list[str] = []
        wait_until(lambda: self._is_ready(wanted, seen), self._timeout, lambda: f"HDFS is not ready: {seen[-1]}")

    def live_datanodes(self) -> int:
        """The number of DataNodes that the NameNode counts as live and with free space: only those get blocks."""
        nodes = json.loads(self._bean("NameNodeInfo")["LiveNodes"])
        return sum(1 for node in nodes.values() if node["remaining"] > 0)

    def _is_ready(self, wanted: int, seen: list[str]) -> bool:
        try:
            live, safe = self.live_datanodes(), self._bean("NameNodeInfo")["Safemode"]
        except (OSError, ValueError, LookupError) as fault:
            seen.append(f"{type(fault).__name__}: {fault}")
            return False
        seen.append(f"{live} of {wanted} DataNodes live. {safe}")
        return live >= wanted and not safe

    def _bean(self, name: str) -> dict[str, Any]:
        query = urllib.parse.quote(f"Hadoop:service=NameNode,name={name}")
        with urllib.request.urlopen(f"{self.web}/jmx?qry={query}", timeout=LOOK) as answer:
            bean: dict[str, Any] = json.load(answer)["beans"][0]
        return bean
