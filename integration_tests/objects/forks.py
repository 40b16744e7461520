"""A process that forks others, which reach an object store and are killed.

It reads tasks as JSON, a list in a line that begin together, and answers each line with how they ended. It has imported
everything and made no request, since obstore does not survive a fork.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from epochal.testing.processes import fork

DONE, FAILED, OVERTAKEN, KILLED = 0, 1, 3, -signal.SIGKILL


class Forks:
    """The process that starts them: a module that serves."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def ended(self, *tasks: Mapping[str, Any]) -> list[tuple[int, str]]:
        """How each of some tasks that begin together ended, and what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(tasks) + "\n")
        self._process.stdin.flush()
        return [(code, said) for code, said in json.loads(self._process.stdout.readline())]


def serve(
    act: Callable[[dict[str, Any]], object], deadline: int, *, overtaken: tuple[type[Exception], ...] = ()
) -> None:
    """Serve until the input ends. What `act` returns is what a task says."""
    import obstore  # noqa: F401  # once, for all

    for line in sys.stdin:
        started = [_start(act, task, deadline, overtaken) for task in json.loads(line)]
        print(json.dumps([_ended(*one) for one in started]), flush=True)


def _start(
    act: Callable[[dict[str, Any]], object], task: dict[str, Any], deadline: int, overtaken: tuple[type[Exception], ...]
) -> tuple[int, int]:
    read, write = os.pipe()
    process = fork()
    if process:
        os.close(write)
        return process, read
    os.close(read)
    ending, said = FAILED, ""
    try:
        signal.alarm(deadline)
        said = str(act(task))
        ending = DONE
    except overtaken as fault:
        ending, said = OVERTAKEN, str(fault)
    except BaseException:  # noqa: BLE001  # the test says it
        said = traceback.format_exc()
    finally:
        os.write(write, said.encode())
        os._exit(ending)


def _ended(process: int, pipe: int) -> tuple[int, str]:
    with os.fdopen(pipe, "rb") as stream:
        said = stream.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said
