"""`epochal rescale` as a process of its own, killed with its JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from epochal.txn import failpoints
from integration_tests.spark.waiting import wait_until


def killed_rescale(
    checkpoint: str, partitions: int, output: Path, *, points: str = "", until: Callable[[], bool] = lambda: False
) -> int:
    """Its exit code: it ends at a failpoint, or is killed once something is so."""
    command = [sys.executable, "-m", "epochal.cli", "rescale", checkpoint, "--partitions", str(partitions)]
    with (
        output.open("w") as file,
        subprocess.Popen(
            command,
            env={**os.environ, failpoints.VARIABLE: points},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        wait_until(lambda: process.poll() is not None or until(), "the rescale to come so far")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also its JVM
        return process.wait()
