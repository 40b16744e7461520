"""Starts processes through a supervisor process, which ends them with this one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epochal.testing.servers import supervisor_process
from epochal.testing.servers.errors import ServerFailed


class Supervisor:
    """Starts processes that end with this one, also after kill -9. `supervisor_process` is the other side."""

    def __init__(self, folder: Path | None = None) -> None:
        arguments = [str(os.getpid()), *([str(folder.absolute())] if folder else [])]
        self._lock = threading.Lock()  # tests kill a node in one thread and watch it in another
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor_process.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # if inherited, readers of this process's stderr would wait for the supervisor
            cwd="/",
            start_new_session=True,  # Ctrl-C is for this process, which then stops the servers in order
        )
        try:
            self.folder = Path(self._answer()["folder"])
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The pid of the supervisor process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        assert self._process.stdin is not None
        return self._process.stdin.closed

    def start(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        user: str | None = None,
        last: int = signal.SIGKILL,
    ) -> int:
        """Start a process in a folder, append its output to the log, and return its pid.

        It runs as `user`, which takes root; `last` is the signal by which it ends with this process.
        """
        request = {"command": list(command), "folder": str(folder), "log": str(log), "environment": dict(environment)}
        pid: int = self._ask("start", **request, user=user, last=int(last))["pid"]
        return pid

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process started here; does nothing if it has ended."""
        self._ask("signal", pid=pid, number=number)

    def code(self, pid: int) -> int | None:
        """The exit code of a process started here; None while it runs."""
        code: int | None = self._ask("look", pid=pid)["code"]
        return code

    def at_end(self, command: Sequence[str]) -> None:
        """Run a command after all processes have ended, with the current environment."""
        self._ask("at_end", command=list(command), environment=dict(os.environ))

    def end(self) -> None:
        """Kill all processes and remove the folder if it is temporary. Idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock, contextlib.suppress(BrokenPipeError):  # the supervisor has ended already
            if not self.ended:
                self._process.stdin.write(supervisor_process.END + b"\n")
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, what: str, **arguments: object) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            if self.ended:
                raise ServerFailed("the cluster was stopped; start a new one")
            try:
                self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise ServerFailed("the supervisor process was killed, and the servers with it") from None
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServerFailed("the supervisor process was killed, and the servers with it")
        answer: dict[str, Any] = json.loads(line)
        if "fault" in answer:
            raise ServerFailed(answer["fault"])
        return answer
