"""The driver's process: started in a session of its own, so that a kill takes Python and the JVM together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import epochal
from epochal.cli.demo.places import Places
from epochal.txn import failpoints

SETTLE = 0.02  # seconds until a stop has reached every thread


class Driver:
    """One start of the driver."""

    def __init__(self, places: Places) -> None:
        home = str(Path(epochal.__file__).parent.parent)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")])),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(places.scratch),
        }
        environment.pop(failpoints.VARIABLE, None)
        with places.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "epochal.cli.demo.driver", str(places.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=places.scratch,  # files that Spark leaves in its working folder are removed with the rest
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def kill_if(self, still: Callable[[], bool]) -> bool:
        """Kill -9 the whole process group, unless the moment has passed.

        It is stopped first and checked again, so that the state seen is the state at the kill.
        """
        self._signal(signal.SIGSTOP)
        time.sleep(SETTLE)
        if not still():
            self._signal(signal.SIGCONT)
            return False
        self.kill()
        return True

    def kill(self) -> None:
        """Kill -9 the whole process group and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + 2  # an orphan that is not reaped still counts as a member
        while self._signal(0) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _signal(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
            return False
        return True
