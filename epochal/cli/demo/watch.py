"""Watches the targets and the checkpoints from outside while the driver runs.

Each look lists the targets first and the checkpoints after. So rows that are there while their epoch's
commits/N is not were really visible too early.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from epochal.cli.demo.places import Places
from epochal.txn.model import Attempt
from epochal.txn.records import attempt_name

NONE = -1


@dataclass(frozen=True, slots=True)
class Sight:
    """One look. An epoch is planned when offsets/N is there, committed when commits/N is."""

    planned: int
    committed: int
    staging: bool  # epochal: some rows of epoch committed + 1 are staged
    prepared: bool  # epochal: the journal records epoch committed + 1 as prepared
    done: int  # epochal: the journal records it as visible in every target
    plain_planned: int
    plain_committed: int
    plain_landed: bool  # plain: rows of epoch plain_committed + 1 are in the folder

    def describe_exact(self) -> str:
        """The state of epochal's query as text."""
        epoch = self.committed + 1
        if self.prepared:
            return f"epoch {epoch} staged and PREPARED, no commits/{epoch}"
        if self.done < self.committed:
            return f"commits/{self.committed} written, its rows not yet all visible"
        if self.staging:
            return f"epoch {epoch} being staged"
        return f"epoch {epoch} planned" if self.planned > self.committed else "between two epochs"

    def describe_plain(self) -> str:
        """The state of the plain query as text."""
        epoch = self.plain_committed + 1
        if self.plain_landed:
            return f"rows of epoch {epoch} in its folder, no commits/{epoch}"
        return f"epoch {epoch} being written" if self.plain_planned > self.plain_committed else "between two epochs"


class Watch:
    """Looks at the folders, and records which epochs were visible too early."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._known: set[str] = set()  # files in the plain folder from committed epochs and from dead drivers
        self._known_at = NONE
        self.looks = 0
        self.early: dict[str, set[int]] = {"by_day": set(), "lake": set(), "plain": set()}
        self._log = TableLog(places.lake)

    def driver_started(self) -> None:
        """Note the files that a dead driver left in the plain folder: the next one did not write them."""
        self._known = set(data_files(self._places.plain))
        self._known_at = highest(self._places.plain_checkpoint / "commits")

    def look(self) -> Sight:
        """Look at everything once."""
        self.looks += 1
        shown = {"by_day": set(map(_epoch_of, data_files(self._places.by_day))), "lake": self._log.epochs()}
        done = _last_done(self._places.journal)
        committed = highest(self._places.exact_checkpoint / "commits")
        for name, epochs in shown.items():
            self.early[name].update(epoch for epoch in epochs if epoch > committed)
        planned = highest(self._places.exact_checkpoint / "offsets")
        generations = _staged_generations(self._places.by_day, committed + 1)
        records = [self._places.journal / attempt_name(committed + 1, g) for g in generations]
        landed, plain_committed = self._look_at_plain()
        return Sight(
            planned=planned,
            committed=committed,
            staging=bool(generations),
            # Only the newest attempt counts: older ones belong to dead drivers.
            prepared=bool(records) and records[-1].exists(),
            done=done,
            plain_planned=highest(self._places.plain_checkpoint / "offsets"),
            plain_committed=plain_committed,
            plain_landed=landed,
        )

    def _look_at_plain(self) -> tuple[bool, int]:
        """A file that appeared after commits/N, while commits/N+1 is missing, belongs to epoch N+1."""
        commits = self._places.plain_checkpoint / "commits"
        before = highest(commits)
        files = set(data_files(self._places.plain))
        if before > self._known_at:
            self._known, self._known_at = files, before
        landed = bool(files - self._known) and highest(commits) == before
        if landed:
            self.early["plain"].add(before + 1)
        return landed, before


class TableLog:
    """A Delta table as its readers see it: the files that its log names."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._read: dict[str, set[int]] = {}

    def epochs(self) -> set[int]:
        """The epochs that a reader sees. The log only grows, so each entry is read once."""
        for name in _names(self._folder):
            if name.endswith(".json") and name[:20].isdecimal() and name not in self._read:
                lines = (self._folder / name).read_text(encoding="utf-8").splitlines()
                added = (json.loads(line).get("add") for line in lines)
                self._read[name] = {_epoch_of(add["path"]) for add in added if add}
        return set().union(*self._read.values())


def _epoch_of(file: str) -> int:
    """The epoch in the name of a file that epochal wrote."""
    return int(file.rpartition("/")[2].split("-")[1])


def data_files(folder: Path) -> Iterator[str]:
    """Every data file in the folder. Spark and Hive ignore names that start with _ or a dot."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir():
            yield from data_files(Path(entry.path))
        else:
            yield entry.path


def highest(folder: Path) -> int:
    """The highest number among a folder's names."""
    return max((int(name) for name in _names(folder) if name.isdecimal()), default=NONE)


def _last_done(journal: Path) -> int:
    return max((int(name[1:13]) for name in _names(journal) if name.endswith(".done.json")), default=NONE)


def _staged_generations(target: Path, epoch: int) -> list[int]:
    """The generations that have staged rows of an epoch."""
    found = []
    for lineage in _folders(target / "_epochal" / "staged"):
        for attempt in _folders(lineage):
            known = Attempt.from_key("", attempt.name)
            if known is not None and known.epoch == epoch:
                found.append(known.generation)
    return sorted(found)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _folders(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
