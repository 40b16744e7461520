"""Streams in any state, without Spark, and the commands run on them."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from epochal.cli import main
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Batch, Json
from epochal.txn.process import Process, this_machine

QUERY = "1f0c9a2e-0000-4000-8000-000000000000"
ROWS: tuple[Json, ...] = ("a", "b", "c")


@dataclass
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Scenery:
    """One checkpoint, its journal and its targets in a folder."""

    def __init__(self, root: Path, checkpoint: str = "checkpoint", query: str = QUERY) -> None:
        self.root = root
        self.checkpoint = root / checkpoint
        self.now: Callable[[], float] = time.time  # for the journal's records
        self.rows: tuple[Json, ...] = ROWS  # of each epoch
        self._files = LocalFiles(sync=False)
        self._query: StandInQuery[Sequence[Json]] = StandInQuery(self._files, str(self.checkpoint), query_id=query)

    def clock(self) -> float:
        return self.now()

    @property
    def journal(self) -> Journal:
        return Journal(self._files, str(self.checkpoint / "epochal"))

    def target(self, name: str = "directory") -> DirectoryParticipant:
        return DirectoryParticipant(str(self.root / name), name=name, files=self._files)

    def driver(self, *targets: DirectoryParticipant, eager: bool = False, new: str = "") -> Coordinator[Sequence[Json]]:
        """A driver that has just started."""
        coordinator = Coordinator(
            journals=lambda number: Journal(
                self._files,
                str(self.checkpoint / "epochal") + ("" if number == 1 else f"~{number}"),
                clock=self.clock,
            ),
            checkpoint=SparkCheckpoint(self._files, str(self.checkpoint)),
            participants=targets or (self.target(),),
            eager=eager,
            choices=Choices(new=tokens(new)),
            version="0.0.0",
        )
        coordinator.begin()
        return coordinator

    def run(self, driver: Coordinator[Sequence[Json]], epochs: int) -> None:
        """Let a driver finish its epochs up to a number."""
        self._query.run(epochs, lambda _: self.rows, driver.run, driver.settle)

    def prepare(self, driver: Coordinator[Sequence[Json]], epoch: int) -> None:
        """Let a driver die between PREPARED and commits/N."""
        self._files.create(str(self.checkpoint / "offsets" / str(epoch)), json.dumps({"epoch": epoch}).encode())
        driver.run(epoch, self.rows)

    def decide(self, driver: Coordinator[Sequence[Json]], epoch: int) -> None:
        """Let a driver die between commits/N and the first commit of a sink."""
        self.prepare(driver, epoch)
        self._files.create(str(self.checkpoint / "commits" / str(epoch)), b"v1\n{}")

    def stage(self, driver: Coordinator[Sequence[Json]], target: DirectoryParticipant, epoch: int) -> Attempt:
        """Let a driver die between staging and PREPARED."""
        self._files.create(str(self.checkpoint / "offsets" / str(epoch)), json.dumps({"epoch": epoch}).encode())
        attempt = Attempt(driver.lineage, epoch, driver.generation)
        target.stage(Batch(attempt=attempt, rows=ROWS, offsets=""))
        return attempt

    def disk(self) -> dict[str, bytes]:
        """Every file there is."""
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


class Scene(Scenery):
    """A scene, and the commands run on it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._capsys = capsys

    def command(self, name: str, *options: str) -> Answer:
        """Run ``epochal NAME CHECKPOINT ...``."""
        return self.epochal(name, str(self.checkpoint), *options)

    def epochal(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        code = main(arguments)
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)


@contextmanager
def going_away(target: DirectoryParticipant | type[DirectoryParticipant]) -> Iterator[None]:
    """A store that answers nothing but the first question; a class stands for all of them."""
    with patch.object(target, "commit", side_effect=ConnectionRefusedError("nobody listens")):
        yield


@cache
def ended_process() -> Process:
    """A process that has run on this machine, and has ended."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        ended.wait()
    return Process(host=platform.node(), pid=ended.pid, ticks=1, machine=this_machine())


@contextmanager
def dying() -> Iterator[None]:
    """Drivers that start in here are of a process that has ended."""
    with patch("epochal.txn.driver_facts.this_process", return_value=ended_process()):
        yield


@contextmanager
def elsewhere() -> Iterator[None]:
    """Drivers that start in here run on another machine."""
    with patch("epochal.txn.driver_facts.this_process", return_value=Process(host="elsewhere", pid=1)):
        yield
