"""A standalone Spark cluster of real processes on loopback: a master and workers, ended by pid."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from integration_tests.spark.children import REPOSITORY
from integration_tests.spark.jvm import QUICK
from integration_tests.spark.waiting import wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the cluster is, and whose children its executors are."""

    url: str
    workers: tuple[int, ...]

    def executors(self) -> dict[int, int]:
        """The executors that run now, each with its worker."""
        found = {}
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and (parent := parent_of(int(process.name))) in self.workers:
                with contextlib.suppress(OSError):
                    if b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                        found[int(process.name)] = parent
        return found


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


@contextlib.contextmanager
def cluster(home: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and its workers, with a core each. None outlives the block, or this process."""
    with contextlib.ExitStack() as started:

        def start(name: str, kind: str, *arguments: str, ready: str) -> tuple[int, re.Match[str]]:
            process = _start(home, name, kind, *arguments)
            started.callback(_end, process)
            return process.pid, _wait_for_line(home / f"{name}.log", ready, process)

        _, match = start("master", "master.Master", ready=r"Starting Spark master at (spark://\S+)")
        url = match[1]
        pids = []
        for number in range(workers):
            folder = ["-c", "1", "-m", "1g", "-d", str(home / f"work-{number}"), url]
            pid, _ = start(f"worker-{number}", "worker.Worker", *folder, ready="Successfully registered with master")
            pids.append(pid)
        yield Cluster(url, tuple(pids))


def _start(home: Path, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True, exist_ok=True)
    command = [
        str(SPARK_CLASS),
        f"org.apache.spark.deploy.{kind}",
        "-h",
        "127.0.0.1",
        "--port",
        "0",
        "--webui-port",
        "0",
    ]
    tied = [sys.executable, "-m", "integration_tests.spark.tied", str(os.getpid())]
    environment = {
        **os.environ,
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LAUNCHER_OPTS": QUICK,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
    }
    with (home / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*tied, *command, *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait_for_line(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    def found() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text(errors="replace")
        return re.search(pattern, log.read_text(errors="replace"))

    wait_until(found, f"{log.name} to say {pattern}")
    match = found()
    assert match is not None
    return match


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
