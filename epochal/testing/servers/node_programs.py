"""A server's program that npm fetches once, with all that it needs, and that is cached. node runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from epochal.spark_plugins.jars import cache_root
from epochal.testing.servers.artifacts import print_progress
from epochal.testing.servers.cached_folders import made_once, run_with_lock
from epochal.testing.servers.errors import ServerFailed

TIMEOUT = 1800
TAIL = 1_000
# No script of any of these packages runs while they are fetched.
SETTINGS = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgram:
    """A package, and which of its files is the program."""

    title: str
    size: str
    package: str
    version: str
    file: str

    @property
    def folder(self) -> Path:
        """The folder of the package; it exists once it is fetched."""
        return cache_root() / f"{self.package}-{self.version}"

    @property
    def path(self) -> Path:
        return self.folder / "node_modules" / self.package / self.file


AZURITE = NodeProgram(title="Azurite", size="186 MB", package="azurite", version="3.35.0", file="dist/src/blob/main.js")


def find_node() -> str | None:
    """What runs it, from PATH."""
    return shutil.which("node")


def find_npm() -> str | None:
    """What fetches it, from PATH."""
    return shutil.which("npm")


def fetched(program: NodeProgram, tell: Callable[[str], None] | None = None) -> Path:
    """The program's file. The first call fetches it."""
    made_once(program.folder, lambda part, lock: _fetched(program, part, tell or print_progress, lock))
    return program.path


def _fetched(program: NodeProgram, part: Path, tell: Callable[[str], None], lock: int) -> Path:
    """The folder below `part` that has the program."""
    npm = find_npm()
    if npm is None:
        raise ServerFailed(f"{program.title} is fetched by npm, which is not in PATH. Install node, which has it")
    tell(f"fetching {program.title} {program.version} ({program.size}, once)")
    made = part / "made"
    made.mkdir()
    command = [npm, "install", "--prefix", str(made), *SETTINGS, f"{program.package}@{program.version}"]
    fault = run_with_lock(
        command, os.environ, lock, lambda done: done.stderr.strip()[-TAIL:], folder=made, timeout=TIMEOUT
    )
    if fault is not None:
        raise ServerFailed(f"{program.title} could not be fetched: `npm install {command[-1]}` {fault}")
    return made
