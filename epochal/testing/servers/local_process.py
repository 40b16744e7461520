"""A server's process, run by the supervisor: start, kill, pause and restart it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.supervisor import Supervisor
from epochal.testing.servers.waiting import wait_until

GENTLE = 20.0  # seconds for a clean shutdown
TAIL = 4_000


class LocalProcess:
    """One server. Its folder, log and command are the same at every start."""

    user: str | None = None  # as whom it runs, if not as this process
    last_signal: int = signal.SIGKILL  # ends it with this process
    end_signal: int = signal.SIGTERM  # asks for a clean shutdown
    variables: Mapping[str, str] = MappingProxyType({})  # of its environment, besides those of this process

    def __init__(
        self, supervisor: Supervisor, name: str, command: Sequence[str], folder: Path, log: Path, *, timeout: float
    ) -> None:
        self._supervisor, self._name, self._command = supervisor, name, command
        self._folder, self._log, self._timeout = folder, log, timeout
        self._pid: int | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def pid(self) -> int:
        if self._pid is None or not self.running:
            raise ServerFailed(f"{self.name} does not run")
        return self._pid

    @property
    def running(self) -> bool:
        return self._pid is not None and not self._supervisor.ended and self.code() is None

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._pid is None else self._supervisor.code(self._pid)

    def start(self) -> None:
        if not self.running:
            self.launch()
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it answers. Raises `ServerFailed` if it ends instead."""
        raise NotImplementedError

    def launch(self) -> None:
        """Start it without waiting."""
        environment = {**os.environ, "MALLOC_ARENA_MAX": "2", **self.variables}
        self._pid = self._supervisor.start(
            self._command,
            folder=self._folder,
            log=self._log,
            environment=environment,
            user=self.user,
            last=self.last_signal,
        )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until it answers. Raises `ServerFailed` if it ends instead."""

        def answers() -> bool:
            code = self.code()
            if code is not None:
                raise ServerFailed(f"{self.name} ended with {code} while it started:\n{self.log_tail()}")
            return ready()

        message = f"{self.name} did not answer within {self._timeout:g} s"
        wait_until(answers, self._timeout, lambda: f"{message}:\n{self.log_tail()}")

    def run_to_end(self) -> None:
        """Start it and wait until it has ended. Raises `ServerFailed` unless its exit code is 0."""
        self.launch()
        try:
            self.wait_until(lambda: False)
        except ServerFailed:
            if self.code() != 0:
                raise

    def stop(self) -> None:
        self.ask_to_end()
        try:
            wait_until(lambda: not self.running, GENTLE, lambda: "")
        except ServerFailed:
            self.kill()

    def ask_to_end(self) -> None:
        """Ask for a clean shutdown without waiting."""
        if self.running:
            self._signal(self.end_signal)
            self._signal(signal.SIGCONT)  # a paused process would not handle it

    def kill(self) -> None:
        if not self.running:
            return
        self._signal(signal.SIGKILL)
        wait_until(lambda: not self.running, GENTLE, lambda: f"{self.name} was killed but still runs")

    def pause(self) -> None:
        pid = self.pid
        self._signal(signal.SIGSTOP)
        # The call only sends the signal; the threads stop some time later.
        wait_until(lambda: _is_stopped(pid), GENTLE, lambda: f"{self.name} did not pause")

    def resume(self) -> None:
        assert self.pid
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        try:
            return self._log.read_text(errors="replace")[-TAIL:]
        except OSError:
            return ""

    def _signal(self, number: int) -> None:
        assert self._pid is not None
        self._supervisor.signal(self._pid, number)


def end_all(supervisor: Supervisor, processes: Sequence[LocalProcess], *, in_order: bool) -> None:
    """End a cluster. With `in_order`, shut down cleanly first, so that the data can be used again."""
    try:
        if in_order:
            for process in processes:
                process.ask_to_end()
            for process in processes:
                process.stop()
    finally:
        supervisor.end()


def children_of(pid: int) -> list[int]:
    """The processes that this one started; none where there is no /proc."""
    found = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [child for child in found if _stat(child)[1:2] == [str(pid)]]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked for its exit code; assumed where there is no /proc."""
    return _stat(pid)[:1] in ([], ["Z"])


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped; assumed where there is no /proc."""
    return _stat(pid)[:1] in ([], ["T"])


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process: its state, its parent and more. Empty if there is no such process."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
