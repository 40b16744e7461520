"""Hadoop's own commands: what administrators do to a cluster, and writers that die with a file open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from epochal.sinks.storage.webhdfs import WebHdfsFiles
from epochal.testing.servers import HdfsCluster, hdfs_site
from epochal.testing.servers.artifacts import HDFS, jars
from epochal.testing.servers.hdfs_java import GOOD, JVM
from epochal.testing.servers.java import find_java
from integration_tests.spark.waiting import DEADLINE, wait_until

DFSADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
SHELL = "org.apache.hadoop.fs.FsShell"
PACKET = 64 * 1024  # bytes that a client sends at a time


def dfsadmin(cluster: HdfsCluster, *arguments: str) -> str:
    """What ``hdfs dfsadmin`` says, run as the cluster's superuser."""
    return _run(_command(DFSADMIN, cluster, *arguments))


def copy_here(cluster: HdfsCluster, path: str, target: Path) -> None:
    """A copy by Hadoop's own client, which asks another DataNode if one does not answer."""
    with _settings(cluster) as conf:
        _run(_command(SHELL, cluster, "-get", path, str(target), conf=conf))


@contextlib.contextmanager
def safe_mode(cluster: HdfsCluster) -> Iterator[None]:
    """The cluster can be read and not written."""
    dfsadmin(cluster, "-safemode", "enter")
    try:
        yield
    finally:
        dfsadmin(cluster, "-safemode", "leave")


def die_writing(cluster: HdfsCluster, paths: Sequence[str]) -> None:
    """Leave files that their writers, killed in the middle, have never closed: HDFS keeps them leased to the dead."""
    with _settings(cluster) as conf:
        writers = [
            subprocess.Popen(_command(SHELL, cluster, "-put", "-d", "-", path, conf=conf), stdin=subprocess.PIPE)
            for path in paths
        ]
        try:
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write(b"x" * 4 * PACKET)
                writer.stdin.flush()
            wait_until(lambda: all(is_half_written(cluster, path) for path in paths), "files to be half written")
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
    leased = dfsadmin(cluster, "-listOpenFiles")
    assert all(path in leased for path in paths), leased


def half_written(cluster: HdfsCluster, folder: str) -> list[str]:
    """The files below a folder whose writers have sent a part and not closed them."""
    paths = [f"{folder}/{entry.name}" for entry in WebHdfsFiles(cluster.web).walk(f"{cluster.uri}{folder}")]
    return [path for path in paths if is_half_written(cluster, path)]


def is_half_written(cluster: HdfsCluster, path: str) -> bool:
    """Whether DataNodes have got a part of a file of which the NameNode knows nothing yet."""
    files, uri = WebHdfsFiles(cluster.web), f"{cluster.uri}{path}"
    try:
        return files.length(uri) == 0 and len(files.read(uri)) >= PACKET
    except OSError:  # it is gone, or its first block is just being made
        return False


@contextlib.contextmanager
def _settings(cluster: HdfsCluster) -> Iterator[str]:
    """A folder of them; the shell does not start without."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "core-site.xml").write_text(hdfs_site.text(hdfs_site.client(cluster.uri, cluster.replication)))
        yield folder


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _command(main: str, cluster: HdfsCluster, *arguments: str, conf: str = "") -> list[str]:
    java = find_java("HDFS", GOOD)
    classes = f"{conf}{os.pathsep}{jars(HDFS, java)[0].parent}/*"
    return [str(java.command), *JVM, "-cp", classes, main, "-fs", cluster.uri, *arguments]
