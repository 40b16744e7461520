"""A server's program that Go's tool chain builds once, from its module, and that is cached."""

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
USUAL_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/opt/homebrew/bin/go")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoProgram:
    """A program's module, and where its package is in it."""

    title: str
    takes: str  # to build, roughly
    module: str
    package: str  # empty: the module itself
    version: str

    @property
    def name(self) -> str:
        return (self.package or self.module).rpartition("/")[2]

    @property
    def folder(self) -> Path:
        """The folder of the program; it exists once it is built."""
        return cache_root() / f"{self.name}-{self.version}"

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def target(self) -> str:
        """What `go install` is asked for."""
        return f"{'/'.join(filter(None, [self.module, self.package]))}@v{self.version}"


VERSITYGW = GoProgram(
    title="versitygw",
    takes="some minutes",
    module="github.com/versity/versitygw",
    package="cmd/versitygw",
    version="1.8.0",
)
FAKE_GCS = GoProgram(
    title="fake-gcs-server",
    takes="some minutes",
    module="github.com/fsouza/fake-gcs-server",
    package="",
    version="1.56.1",
)


def find_go() -> str | None:
    """Go's tool chain: that in PATH, or in a usual place."""
    return shutil.which("go") or next((place for place in USUAL_PLACES if os.access(place, os.X_OK)), None)


def built(program: GoProgram, tell: Callable[[str], None] | None = None) -> Path:
    """The program's file. The first call builds it."""
    made_once(program.folder, lambda part, lock: _built(program, part, tell or print_progress, lock))
    return program.path


def _built(program: GoProgram, part: Path, tell: Callable[[str], None], lock: int) -> Path:
    """The folder below `part` that has the program."""
    go = find_go()
    if go is None:
        raise ServerFailed(
            f"{program.title} is built by Go's tool chain, which is neither in PATH nor in {', '.join(USUAL_PLACES)}. "
            f"Install it, or put the program into {program.path}"
        )
    tell(f"building {program.title} {program.version} ({program.takes}, once)")
    made = part / "bin"
    fault = _run([go, "install", program.target], made, lock)
    if fault is not None:
        raise ServerFailed(f"{program.title} could not be built: `go install {program.target}` {fault}")
    return made


def _run(command: list[str], made: Path, lock: int) -> str | None:
    """Run a command that puts a program into a folder; returns the error, or None."""
    environment = {**os.environ, "GOBIN": str(made), "CGO_ENABLED": "0"}  # no compiler of C is needed
    return run_with_lock(
        command, environment, lock, lambda done: done.stderr.strip()[-TAIL:], folder=made.parent, timeout=TIMEOUT
    )
