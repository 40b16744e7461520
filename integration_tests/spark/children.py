"""Drivers as real processes: each leads a session of its own, so that a kill takes its JVM too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from epochal.txn import failpoints
from integration_tests.spark.driver import Ending
from integration_tests.spark.jvm import environment
from integration_tests.spark.waiting import is_early, wait_until

LOOK = 5.0  # seconds between two looks at the clock
LAST_WORDS = 10.0  # seconds
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended and what it said."""

    code: int
    output: str

    @property
    def ending(self) -> Ending:
        return Ending(self.code)


class Child:
    """A process that was started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> Ended:
        """Its end and that of everything it started: all of them hold the pipe that is read here."""
        start = time.monotonic()
        while True:
            try:
                output, _ = self._process.communicate(timeout=LOOK)
            except subprocess.TimeoutExpired:
                if is_early(start):
                    continue
                raise AssertionError(f"a child did not end:\n{self._last_words()}") from None
            return Ended(self._process.returncode, output)

    def wait_for(self, path: Path) -> None:
        """Return when a file is there that the child makes."""
        self.wait_until(path.exists, f"a child to make {path}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return when something holds that the child brings about."""
        wait_until(lambda: condition() or self._process.poll() is not None, what)
        if not condition():
            raise AssertionError(f"the child ended before: {what}\n{self.wait().output}")

    def _last_words(self) -> str:
        """What it has said, and where its threads stand, those of its JVM too; then it is killed."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGQUIT)
            self._process.communicate(timeout=LAST_WORDS)
        self.kill()
        return self._process.communicate()[0]

    def interrupt(self) -> None:
        """What Ctrl-C does to it; its JVM is started so that it does not mind."""
        os.kill(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and what it started, if they still run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Children:
    """Starts drivers; whatever still runs at the end of a test is killed."""

    def __init__(self, java_options: str) -> None:
        self._java_options = java_options
        self._started: list[Child] = []

    def start(self, root: Path, *arguments: str, points: str = "") -> Child:
        """A driver on a world, with failpoints."""
        return self.run_module("integration_tests.spark.driver", str(root), *arguments, points=points)

    def run(self, root: Path, *arguments: str, points: str = "") -> Ended:
        """A driver, seen to its end."""
        return self.start(root, *arguments, points=points).wait()

    def run_lanes(self, lanes: Sequence[tuple[str, Path, Sequence[str]]]) -> Ended:
        """A driver of several streams, each with its failpoint, its world and its arguments, seen to its end."""
        given = [("--lane", point, str(root), *arguments) for point, root, arguments in lanes]
        return self.run_module("integration_tests.spark.lanes", *(word for lane in given for word in lane)).wait()

    def run_module(self, module: str, *arguments: str, points: str = "") -> Child:
        """Any module of the tests."""
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", module, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **environment(self._java_options), failpoints.VARIABLE: points},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        child = Child(process)
        self._started.append(child)
        return child

    def end(self) -> None:
        for child in self._started:
            child.kill()
            child._process.communicate()


@contextlib.contextmanager
def children(java_options: str) -> Iterator[Children]:
    """Drivers that do not outlive the block."""
    started = Children(java_options)
    try:
        yield started
    finally:
        started.end()
