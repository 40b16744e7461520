"""Streams whose checkpoint, journal and savepoints are on an object store, and commands run on them, as processes.

    python -m integration_tests.objects.moves

Without Spark: a stand-in writes the checkpoint. The targets are on disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epochal.cli import main
from epochal.sinks.storage.objects import probe
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving import restoring
from epochal.spark_plugins.restore_marks import refuse_unfinished_restore
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import Files, LocalFiles
from epochal.txn.incarnations import incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from integration_tests.objects.forks import DONE, Forks, serve

assert restoring.__name__ in sys.modules  # it has registered its failpoints

DEADLINE = 600  # seconds: a store that fails is waited for
SINKS = ("left", "right")
ROWS: tuple[Json, ...] = ("a", "b", "c")


def driver(files: Files, place: str, targets: Path) -> Coordinator[Sequence[Json]]:
    """One that has just started."""
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=lambda number: Journal(files, incarnation_path(f"{place}/epochal", number)),
        checkpoint=SparkCheckpoint(files, place),
        participants=[DirectoryParticipant(str(targets / n), name=n, files=LocalFiles(sync=False)) for n in SINKS],
    )
    coordinator.begin()
    return coordinator


def act(task: Mapping[str, Any]) -> str:
    """One process: a driver, or a command. What a command printed, with its exit code."""
    if task["points"]:
        failpoints.arm(task["points"], "")
    if task["kind"] == "command":
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(task["arguments"])
        return json.dumps([code, out.getvalue(), err.getvalue()])
    files, place = resolve_checkpoint(task["checkpoint"])
    refuse_unfinished_restore(files, place)
    query: StandInQuery[Sequence[Json]] = StandInQuery(files, place)
    started = driver(files, place, Path(task["targets"]))
    epochs = task["epochs"]
    if epochs:
        for version in range(1, epochs + 1):
            files.create(f"{place}/state/0/0/{version}.delta", b"%d" % version)
        query.run(epochs, lambda _: ROWS, started.run, started.settle)
    return ""


@dataclass(frozen=True)
class Moves:
    """One stream, and where it moves."""

    forks: Forks
    place: str  # a folder of the bucket
    targets: Path

    @property
    def original(self) -> str:
        return f"{self.place}/checkpoint"

    @property
    def new(self) -> str:
        return f"{self.place}/new"

    def run(self, epochs: int, checkpoint: str = "") -> None:
        """Let a driver run to an epoch."""
        code, said = self._driver(checkpoint or self.original, epochs)
        assert code == DONE, said

    def starts(self, checkpoint: str) -> bool:
        """Whether a driver can start there, on a checkpoint that has the id of a query."""
        if resolve_checkpoint(checkpoint)[0].length(f"{checkpoint}/metadata") is None:
            return False
        return self._driver(checkpoint, 0)[0] == DONE

    def command(self, *arguments: str, points: str = "") -> tuple[int, str]:
        """How a command ended: the code of its process, or its own; and all that it printed."""
        task = {"kind": "command", "arguments": arguments, "points": points}
        ((ended, said),) = self.forks.ended(task)
        if ended != DONE:
            return ended, said
        code, out, err = json.loads(said)
        return code, out + err

    def savepoint(self, checkpoint: str = "", *, points: str = "") -> tuple[int, str]:
        return self.command("savepoint", checkpoint or self.original, f"{self.place}/backups", points=points)

    def saved(self, checkpoint: str = "") -> str:
        """A savepoint that was taken."""
        source = checkpoint or self.original
        code, said = self.command("savepoint", source, f"{self.place}/backups", "--json")
        assert code == 0, said
        return str(json.loads(said)["savepoint"])

    def restore(self, savepoint: str, *options: str, to: str = "", points: str = "") -> tuple[int, str]:
        return self.command("restore", savepoint, to or self.new, "--wait", "0", *options, points=points)

    def shown(self) -> list[Counter[int]]:
        """The epochs that each target shows, with how often."""
        return [
            Counter(int(path.name.split(".")[0]) for path in (self.targets / sink).iterdir() if path.is_file())
            for sink in SINKS
        ]

    def _driver(self, checkpoint: str, epochs: int) -> tuple[int, str]:
        task = {"kind": "driver", "checkpoint": checkpoint, "epochs": epochs, "targets": str(self.targets)}
        ((code, said),) = self.forks.ended({**task, "points": ""})
        return code, said


if __name__ == "__main__":
    probe.is_proven = lambda *_: False  # what the store is like is tested elsewhere: it is no question for each process
    serve(act, DEADLINE)
