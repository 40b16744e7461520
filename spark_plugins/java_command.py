"""Finds the `java` command and its version.

Standard library only: `scripts/check_java.py` runs before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

TIMEOUT = 60  # seconds


def launcher_java() -> Path | None:
    """The command that Spark's launcher runs: the one in JAVA_HOME if that is set, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return None if found is None else Path(found)


def major_version(command: Path) -> int | None:
    """The major version: 8 for 1.8.0_392, 17 for 17.0.15. None if the command does not start or prints no version."""
    try:
        run = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(version[1]) if version and run.returncode == 0 else None
