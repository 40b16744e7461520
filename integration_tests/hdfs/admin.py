"""Hadoop's own commands: what administrators do to a cluster, and writers that die with a file open."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from epochal.testing.servers import HdfsCluster
from epochal.testing.servers.artifacts import HDFS, jars
from epochal.testing.servers.hdfs_local import GOOD, JVM
from epochal.testing.servers.java import find_java
from integration_tests.spark.waiting import DEADLINE, wait_until

DFSADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
SHELL = "org.apache.hadoop.fs.FsShell"
PACKET = 64 * 1024  # bytes that a client sends at a time


def dfsadmin(cluster: HdfsCluster, *arguments: str) -> str:
    """What ``hdfs dfsadmin`` says, run as the cluster's superuser."""
    return _run(_command(DFSADMIN, cluster, *arguments))


def copy_here(cluster: HdfsCluster, folder: Path, path: str, target: Path) -> None:
    """A copy by Hadoop's own client, which asks another DataNode if one does not answer."""
    _run(_command(SHELL, cluster, "-get", path, str(target), conf=_settings(folder)))


@contextlib.contextmanager
def safe_mode(cluster: HdfsCluster) -> Iterator[None]:
    """The cluster can be read and not written."""
    dfsadmin(cluster, "-safemode", "enter")
    try:
        yield
    finally:
        dfsadmin(cluster, "-safemode", "leave")


def die_writing(cluster: HdfsCluster, folder: Path, paths: Sequence[str]) -> None:
    """Leave files that their writers, killed in the middle, have never closed: HDFS keeps them leased to the dead."""
    before = open_blocks(folder)
    writers = [
        subprocess.Popen(
            _command(SHELL, cluster, "-put", "-d", "-", path, conf=_settings(folder)), stdin=subprocess.PIPE
        )
        for path in paths
    ]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(b"x" * 4 * PACKET)
            writer.stdin.flush()
        wait_until(lambda: len(open_blocks(folder) - before) == len(paths), "the files to be half written")
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    leased = dfsadmin(cluster, "-listOpenFiles")
    assert all(path in leased for path in paths), leased


def open_blocks(folder: Path) -> set[str]:
    """The blocks of which the first DataNode has got a part, in a cluster that was started with this folder."""
    found = (folder / "datanode1" / "data").glob("current/BP-*/current/rbw/blk_*[0-9]")
    return {block.name for block in found if block.stat().st_size >= PACKET}


def _settings(folder: Path) -> str:
    """Of a cluster that was started with this folder; the shell does not start without files of them."""
    return str(folder / "namenode" / "conf")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _command(main: str, cluster: HdfsCluster, *arguments: str, conf: str = "") -> list[str]:
    java = find_java("HDFS", GOOD)
    classes = f"{conf}{os.pathsep}{jars(HDFS, java)[0].parent}/*"
    return [str(java.command), *JVM, "-cp", classes, main, "-fs", cluster.uri, *arguments]
