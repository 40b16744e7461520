"""Clients of a Connect server, as the tests see them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration_tests.connect.client import ANSWER
from integration_tests.connect.server import REPOSITORY, SQLITE, Server
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

COMMAND = [sys.executable, "-m", "integration_tests.connect.client"]
# Its own mounts: a folder that is empty for it, whatever the others have there.
ELSEWHERE = ["sh", "-c", 'mount -t tmpfs none "$1" && shift && exec "$@"', "sh"]


class Client:
    """One process, with one session after the other.

    With `away` it is on another machine as far as files go: that folder, which has all files of the tests, is empty
    for it, and what it writes there nobody else sees.
    """

    def __init__(self, root: Path, *, away: Path | None = None) -> None:
        self.log = root / "client.log"
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                COMMAND if away is None else [*unshare, *ELSEWHERE, str(away), *COMMAND],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{SQLITE}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        if away is not None:
            wait_until(lambda: self._process.poll() is not None or self.seen(away).is_mount(), "a folder to be hidden")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def seen(self, path: Path) -> Path:
        """What this client sees at a path, as others reach it."""
        return Path(f"/proc/{self._process.pid}/root{path}")

    def run(self, server: Server, world: World, **order: Any) -> dict[str, Any]:
        """A query, seen to its end unless the order says otherwise; what came of it."""
        self.send(server, world, **order)
        return self.answer()

    def send(self, server: Server, world: World, **order: Any) -> None:
        """Give an order and do not wait for the answer."""
        assert self._process.stdin is not None
        order = {"trigger": {"availableNow": True}, **order, "url": server.url, "root": str(world.root)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return found
        raise AssertionError(f"the client has ended:\n{self.log.read_text()}")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextlib.contextmanager
def client(root: Path, *, away: Path | None = None) -> Iterator[Client]:
    """A client that does not outlive the block."""
    started = Client(root, away=away)
    try:
        yield started
    finally:
        started.kill()
