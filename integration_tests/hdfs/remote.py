"""A world whose checkpoint and targets are on HDFS, and a copy of it here for checks that read bare files."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

from hdfs import InsecureClient

from epochal.testing.servers import HdfsCluster
from integration_tests.spark.world import World

_numbers = itertools.count(1)


class Remote:
    """One folder of a cluster."""

    def __init__(self, cluster: HdfsCluster, root: Path) -> None:
        self.cluster, self.world = cluster, World(root)
        self.path = f"/tests-{os.getpid()}-{next(_numbers)}"
        self.client = InsecureClient(cluster.web, timeout=30)
        self._seen: dict[tuple[object, ...], bytes] = {}

    @property
    def uri(self) -> str:
        return f"{self.cluster.uri}{self.path}"

    @property
    def arguments(self) -> list[str]:
        """The driver's options for it."""
        settings = [f"{name}={value}" for name, value in self.cluster.settings.items() if "defaultFS" not in name]
        return ["--at", self.uri, *(part for setting in settings for part in ("--conf", setting))]

    def look(self) -> World:
        """The world as it is now, copied here."""
        for name in ("checkpoint", "first", "second", "table"):
            copy = self.world.root / name
            shutil.rmtree(copy, ignore_errors=True)
            if self.client.status(f"{self.path}/{name}", strict=False):
                self._copy(f"{self.path}/{name}", copy)
        return self.world

    def _copy(self, path: str, into: Path) -> None:
        into.mkdir(parents=True)
        for name, status in self.client.list(path, status=True):
            below = f"{path}/{name}"
            if status["type"] == "DIRECTORY":
                self._copy(below, into / name)
            else:
                (into / name).write_bytes(self._content(below, status))

    def _content(self, path: str, status: dict[str, object]) -> bytes:
        """Read once for as long as nothing is written to it, nor joined to it."""
        version = (path, *(status[fact] for fact in ("fileId", "length", "modificationTime")))
        if version not in self._seen:
            with self.client.read(path) as reader:
                self._seen[version] = reader.read()
        return self._seen[version]
