"""The process that servers are children of: when whoever asked for them is gone, so are they and their folder.

Run as a file of its own, with the standard library only, by `keeping.Keeper`:

    python keeper.py PARENT [FOLDER]

It reads one JSON request a line and answers each with one line; its first line tells the folder. Without FOLDER it
makes a temporary one. A request to end, the end of its input or of the parent are the end of all: its children are
killed, what was left to be done is done, and a temporary folder is removed. A clean stop and the kill -9 of the
parent take the same way.

It starts the servers itself, so there is no moment at which a server runs that nobody would end. It is the only one
that waits for them, so a pid it signals is a server's and never somebody else's.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCK = "keeper.lock"
END = b"end"  # said aloud, for a process that the parent forked may hold the pipe open
PR_SET_PDEATHSIG = 1
AT_END = 120  # seconds for each thing that is left to be done


class Keeper:
    """The children, and what is left to be done at the end."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._at_end: list[tuple[list[str], dict[str, str]]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one thing."""
        match request["do"]:
            case "start":
                return {"pid": self._start(request)}
            case "signal":
                child = self._children[request["pid"]]
                child.send_signal(request["number"])  # it looks first whether the child still runs
                return {}
            case "look":
                return {"code": self._children[request["pid"]].poll()}
            case "at_end":
                self._at_end.append((request["command"], request["environment"]))
                return {}
        raise ValueError(f"unknown request: {request}")

    def end(self) -> None:
        """Leave nothing behind."""
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
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
                # Only if the keeper itself is killed is this needed. It has one thread, so it may be done here.
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        self._children[child.pid] = child
        return child.pid


def main(parent: int, given: str | None) -> None:
    """Serve one parent until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(given) if given else Path(tempfile.mkdtemp(prefix="epochal-server-"))
    keeper = Keeper()
    try:
        with _locked(folder) as fault:
            _say({"fault": fault} if fault else {"folder": str(folder)})
            for line in () if fault else _lines(parent):
                if line == END:
                    break
                try:
                    answer = keeper.answer(json.loads(line))
                except Exception as error:  # noqa: BLE001  # the parent judges it
                    answer = {"fault": f"{type(error).__name__}: {error}"}
                _say(answer)
    except BrokenPipeError:
        pass  # the parent went while it was answered
    finally:
        keeper.end()
        if not given:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[str]:
    """Two servers in one folder would ruin it. Gives the fault, if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield f"a server already runs in {folder}"
        else:
            yield ""


def _lines(parent: int) -> Iterator[bytes]:
    """Requests, until the pipe ends or the parent does: a process that it forked may hold the pipe open."""
    waiting = [0, *_watched(parent)]
    rest = b""
    while select.select(waiting, [], [])[0] == [0]:
        read = os.read(0, 65_536)
        if not read:
            return
        *whole, rest = (rest + read).split(b"\n")
        yield from whole


def _watched(parent: int) -> list[int]:
    """A descriptor that becomes readable when the parent is gone, where the system has such a thing."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit(0)
    if os.getppid() != parent:  # gone before, and its number may be another's now
        sys.exit(0)
    return [watched]


def _say(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let Linux send this process a signal when the one that started it is gone; for `preexec_fn`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
