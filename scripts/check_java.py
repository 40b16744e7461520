"""Exit quietly if Spark will find a Java it can run on, else with one line that says what to do.

Looks where Spark's launcher looks: JAVA_HOME first, then PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import NoReturn

NEEDED = 17


def find_java() -> str:
    """The java command that Spark would start; exits if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if not os.access(java, os.X_OK):
            fail(f"JAVA_HOME is {home}, which has no bin/java")
        return java
    return shutil.which("java") or fail("found none: JAVA_HOME is not set and PATH has no java")


def major(java: str) -> int:
    """Its major version: 8 for 1.8.0_392, 17 for 17.0.15; exits if it does not say."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        fail(f"{java} does not start: {error}")
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if run.returncode or not found:
        fail(f"{java} -version does not tell its version")
    return int(found[1])


def fail(what: str) -> NoReturn:
    """One line: what was found, and what to do."""
    sys.exit(
        f"error: Spark needs Java {NEEDED} or newer; {what}. Install OpenJDK {NEEDED} or 21, or point JAVA_HOME at it"
    )


if __name__ == "__main__":
    command = find_java()
    version = major(command)
    if version < NEEDED:
        fail(f"{command} is Java {version}")
