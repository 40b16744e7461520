"""The process that starts the servers, so that they end with the process that asked for them.

`supervisor.Supervisor` runs this file by itself, with the standard library only:

    python supervisor_process.py PARENT [FOLDER]

It reads one JSON request a line and answers each with one line. The first line that it writes names the folder; without
FOLDER it makes a temporary one. It ends when it is asked to, when its input ends, or when the parent is gone. Then it
kills its children, runs the commands registered by `at_end` and removes a temporary folder. A clean stop and a kill -9
of the parent take the same path.

It starts the servers itself, so no server ever runs without a process that ends it. Only this process waits for them,
so a pid that it signals always belongs to a server.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCK = "server.lock"
END = b"end"  # an explicit request: a process that the parent forked may hold the pipe open
PR_SET_PDEATHSIG = 1
AT_END = 120  # seconds for each command of `at_end`
LAST = 10  # seconds for a server to end by its own last signal


class Children:
    """The servers, and the commands to run at the end."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._last: dict[int, int] = {}  # the signal that ends each
        self._at_end: list[tuple[list[str], dict[str, str]]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        match request["do"]:
            case "start":
                return {"pid": self._start(request)}
            case "signal":
                child = self._children[request["pid"]]
                child.send_signal(request["number"])  # does nothing if the child has ended
                return {}
            case "look":
                return {"code": self._children[request["pid"]].poll()}
            case "at_end":
                self._at_end.append((request["command"], request["environment"]))
                return {}
        raise ValueError(f"unknown request: {request}")

    def end(self) -> None:
        """Kill all children, then run the commands of `at_end`."""
        for pid, child in self._children.items():
            child.send_signal(self._last[pid])
        for child in self._children.values():
            try:
                child.wait(LAST)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for command, environment in self._at_end:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    check=False,
                    timeout=AT_END,
                )

    def _start(self, request: dict[str, Any]) -> int:
        with Path(request["log"]).open("ab") as log:
            child = subprocess.Popen(
                request["command"],
                cwd=request["folder"],
                env=request["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **_identity(request.get("user")),
                # For a kill of this process itself. It has one thread, so preexec_fn is safe.
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        self._children[child.pid] = child
        self._last[child.pid] = request.get("last", signal.SIGKILL)
        return child.pid


def _identity(user: str | None) -> dict[str, Any]:
    """How to start a process as another user."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def main(parent: int, given: str | None) -> None:
    """Serve one parent until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(given) if given else Path(tempfile.mkdtemp(prefix="epochal-server-"))
    children = Children()
    try:
        with _locked(folder) as fault:
            _send({"fault": fault} if fault else {"folder": str(folder)})
            for line in () if fault else _lines(parent):
                if line == END:
                    break
                try:
                    answer = children.answer(json.loads(line))
                except Exception as error:  # noqa: BLE001  # the parent raises it
                    answer = {"fault": f"{type(error).__name__}: {error}"}
                _send(answer)
    except BrokenPipeError:
        pass  # the parent ended before it read the answer
    finally:
        children.end()
        if not given:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[str]:
    """Lock the folder: two servers in one would corrupt it. Yields an error message, or an empty text."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield f"a server already runs in {folder}"
        else:
            yield ""


def _lines(parent: int) -> Iterator[bytes]:
    """Requests, until the pipe or the parent ends: a process that the parent forked may hold the pipe open."""
    waiting = [0, *_watched(parent)]
    rest = b""
    while select.select(waiting, [], [])[0] == [0]:
        read = os.read(0, 65_536)
        if not read:
            return
        *whole, rest = (rest + read).split(b"\n")
        yield from whole


def _watched(parent: int) -> list[int]:
    """A descriptor that becomes readable when the parent ends; none where the system lacks pidfd_open."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit(0)
    if os.getppid() != parent:  # it had ended before, and its pid may belong to another process now
        sys.exit(0)
    return [watched]


def _send(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask Linux to signal this process when the one that started it ends; for `preexec_fn`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
