"""A folder of the cache that one process fills, once, while others wait. It gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path


def made_once(folder: Path, make: Callable[[Path, int], Path]) -> None:
    """Make a folder, unless it is there.

    `make` gets an empty folder beside it, and the lock to pass to the commands that it runs. It returns the folder
    below the empty one that is to get the name.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder) as lock:
        if folder.exists():
            return
        for leftover in folder.parent.glob(f"{folder.name}.part-*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.part-") as part:
            os.rename(make(Path(part), lock), folder)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[int]:
    """Let one process fill a folder while others wait: two Mavens at once would corrupt the user's repository.

    The lock ends with the processes that hold it, so a killed download blocks nobody.
    """
    with Path(f"{folder}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def run_with_lock(
    command: list[str],
    environment: Mapping[str, str],
    lock: int,
    reason: Callable[[subprocess.CompletedProcess[str]], str],
    *,
    timeout: int,
    folder: Path | None = None,
) -> str | None:
    """Run a command that holds the lock; returns the error, of which `reason` makes the last part, or None."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            pass_fds=[lock],  # if this process is killed, others wait until the command has ended too
        )
    except subprocess.TimeoutExpired:
        return f"took more than {timeout} s"
    return f"ended with {done.returncode}: {reason(done)}" if done.returncode else None
