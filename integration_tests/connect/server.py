"""A Spark Connect server as a process of its own, so that it can be killed: it, or a Python process of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from integration_tests.spark.jvm import CHEAP, LOOPBACK, environment
from integration_tests.spark.waiting import wait_until

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SQLITE = REPOSITORY / "examples" / "sqlite-sink"  # a sink of another package
MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
DAEMON = "pyspark.daemon"


class Server:
    """A server on a free port of this machine."""

    def __init__(
        self,
        root: Path,
        java_options: str,
        variables: dict[str, str] | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._points = root / "points"
        self.log = root / "server.log"
        self.port = _free_port()
        conf = {
            **CHEAP,
            **LOOPBACK,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.master": "local[2]",
            "spark.sql.warehouse.dir": f"file:{root}/warehouse",
            **(settings or {}),
        }
        arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(submit), "--class", MAIN, *arguments, "spark-internal"],
                cwd=root,
                env={
                    **os.environ,
                    **environment(java_options),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": f"{HERE / 'startup'}:{REPOSITORY}:{SQLITE}",
                    "EPOCHAL_TEST_POINTS": str(self._points),
                    **(variables or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def wait(self) -> None:
        """Return when it answers."""
        wait_until(lambda: self._process.poll() is not None or _answers(self.port), "the Connect server to answer")
        assert self._process.poll() is None, self.log.read_text()

    def arm(self, points: str) -> None:
        """The failpoints of processes that it starts from now on."""
        self._points.write_text(points, encoding="ascii")

    def workers(self) -> list[int]:
        """The processes that write batches."""
        return [pid for pid, command in _children(self._process.pid) if WORKER in command]

    def callees(self) -> list[int]:
        """The processes that do what clients ask the server for, or wait for the next to ask."""
        parents = [pid for pid, command in _children(self._process.pid) if DAEMON in command]
        return [pid for parent in parents for pid, _ in _children(parent)]

    def wait_for_workers(self) -> None:
        """Return when no process writes batches: they end after their queries, when they have settled."""
        wait_until(lambda: not self.workers(), "the processes of ended queries to end")

    def kill(self) -> None:
        """Kill the server itself. Its Python processes live on, as they do when a JVM dies."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Kill whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def server(
    root: Path, java_options: str, variables: dict[str, str] | None = None, settings: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server that does not outlive the block."""
    started = Server(root, java_options, variables, settings)
    try:
        started.wait()
        yield started
    finally:
        started.end()


def _children(parent: int) -> list[tuple[int, str]]:
    """The processes that a process has started, each with its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append((int(entry.name), (entry / "cmdline").read_text()))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
