"""Finds a Java that a server runs on: in JAVA_HOME, then PATH, then the usual folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from epochal.spark_plugins.java_command import launcher_java, major_version
from epochal.testing.servers.errors import ServerFailed

# Cassandra 5.0 supports 11 and 17, and runs on 21 if a security manager is allowed; 24 has none.
GOOD = (11, 17, 21)
# Of every server: the simple compiler and the simple collector start fastest.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A java command and its major version."""

    command: Path
    major: int

    @property
    def home(self) -> Path:
        """The value for JAVA_HOME."""
        return self.command.resolve().parent.parent


def find_java(server: str = "Cassandra", good: Sequence[int] = GOOD) -> Java:
    """The first Java that a server runs on. Raises `ServerFailed` with the versions found instead."""
    passed: list[str] = []
    for command in _candidates():
        major = major_version(command)
        if major is not None and major in good:
            return Java(command, major)
        passed.append(f"{command} is Java {major}" if major else f"{command} does not start")
    found = "; ".join(passed) if passed else "found none in JAVA_HOME, PATH and the usual places"
    others = " and ".join(str(major) for major in good if major != 17)
    raise ServerFailed(f"{server} needs Java 17 ({others} do too); {found}. Install OpenJDK 17")


def _candidates() -> Iterator[Path]:
    seen: set[Path] = set()
    for command in _commands():
        if os.access(command, os.X_OK) and command.resolve() not in seen:
            seen.add(command.resolve())
            yield command


def _commands() -> Iterator[Path]:
    if first := launcher_java():
        yield first
    if found := shutil.which("java"):
        yield Path(found)
    for pattern in USUAL_PLACES:
        whole = Path(pattern).expanduser()
        for home in sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))):
            yield home / "bin" / "java"
