"""Exit with 0 if Spark can run on the Java it will find, else with one line that says what to do.

Runs before anything is installed: `epochal.spark_plugins.java_command` needs the standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

NEEDED = 17


def main() -> None:
    """Check the command that Spark's launcher would run."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from epochal.spark_plugins.java_command import launcher_java, major_version

    command = launcher_java()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        fail(f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set and PATH has no java")
    version = major_version(command)
    if version is None:
        fail(f"{command} does not start, or `{command} -version` prints no version")
    if version < NEEDED:
        fail(f"{command} is Java {version}")


def fail(what: str) -> NoReturn:
    """Exit with one line: what was found, and what to do."""
    sys.exit(
        f"error: Spark needs Java {NEEDED} or newer; {what}. Install OpenJDK {NEEDED} or 21, or point JAVA_HOME at it"
    )


if __name__ == "__main__":
    main()
