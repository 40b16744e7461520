"""The near side of the keeper: its process, and one question at a time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epochal.testing.servers import keeper
from epochal.testing.servers.errors import ServerFailed


class Keeper:
    """Starts processes that end with this one, however that ends. See `keeper` for the far side."""

    def __init__(self, folder: Path | None = None) -> None:
        arguments = [str(os.getpid()), *([str(folder.absolute())] if folder else [])]
        self._lock = threading.Lock()  # tests kill a node from one thread and look at it from another
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # held open, it would keep whoever reads this process's stderr to its end
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
        """The keeper's own."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it was told to end everything."""
        assert self._process.stdin is not None
        return self._process.stdin.closed

    def start(self, command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]) -> int:
        """Start a process in a folder; what it says is added to the log. Its pid."""
        request = {"command": list(command), "folder": str(folder), "log": str(log), "environment": dict(environment)}
        pid: int = self._ask("start", **request)["pid"]
        return pid

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process that was started here, unless it has ended."""
        self._ask("signal", pid=pid, number=number)

    def code(self, pid: int) -> int | None:
        """The exit code of a process that was started here; None while it runs."""
        code: int | None = self._ask("look", pid=pid)["code"]
        return code

    def at_end(self, command: Sequence[str]) -> None:
        """Run a command when everything ends, with the environment of now."""
        self._ask("at_end", command=list(command), environment=dict(os.environ))

    def end(self) -> None:
        """Kill what runs, and remove the folder if it is a temporary one. May be called again."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock, contextlib.suppress(BrokenPipeError):  # it was ended before
            if not self.ended:
                self._process.stdin.write(keeper.END + b"\n")
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, what: str, **facts: object) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            if self.ended:
                raise ServerFailed("the server was stopped for good")
            try:
                self._process.stdin.write(json.dumps({"do": what, **facts}).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise ServerFailed("the servers' keeper was ended, and the servers with it") from None
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServerFailed("the servers' keeper was ended, and the servers with it")
        answer: dict[str, Any] = json.loads(line)
        if "fault" in answer:
            raise ServerFailed(answer["fault"])
        return answer
