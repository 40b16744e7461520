"""What can be seen from outside while the driver runs: by a reader of the targets, and in the checkpoints.

Every look lists the targets first and the checkpoints after, so rows that are there while their
epoch's commits/N is not were really readable too early.
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
    staging: bool  # epochal: something of epoch committed + 1 is staged
    prepared: bool  # epochal: all of epoch committed + 1 is staged, and the journal says so
    done: int  # epochal: visible in every target, and the journal says so
    plain_planned: int
    plain_committed: int
    plain_landed: bool  # plain: rows of epoch plain_committed + 1 are in the folder

    def exact_says(self) -> str:
        """What epochal's query is doing, in words."""
        epoch = self.committed + 1
        if self.prepared:
            return f"epoch {epoch} staged and PREPARED, no commits/{epoch}"
        if self.done < self.committed:
            return f"commits/{self.committed} written, its rows not yet all visible"
        if self.staging:
            return f"epoch {epoch} being staged"
        return f"epoch {epoch} planned" if self.planned > self.committed else "between two epochs"

    def plain_says(self) -> str:
        """What the plain query is doing, in words."""
        epoch = self.plain_committed + 1
        if self.plain_landed:
            return f"rows of epoch {epoch} in its folder, no commits/{epoch}"
        return f"epoch {epoch} being written" if self.plain_planned > self.plain_committed else "between two epochs"


class Watch:
    """Looks, and remembers which epochs were readable too early."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._known: set[str] = set()  # the plain folder's files of committed epochs and of dead drivers
        self._known_at = NONE
        self.looks = 0
        self.early: dict[str, set[int]] = {"by_day": set(), "lake": set(), "plain": set()}
        self._log = TableLog(places.lake)

    def driver_started(self) -> None:
        """What a dead driver left in the plain folder was not written by the next one."""
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
            # The newest attempt counts: older ones are those of dead drivers.
            prepared=bool(records) and records[-1].exists(),
            done=done,
            plain_planned=highest(self._places.plain_checkpoint / "offsets"),
            plain_committed=plain_committed,
            plain_landed=landed,
        )

    def _look_at_plain(self) -> tuple[bool, int]:
        """A file that is new since commits/N was seen, while commits/N+1 is not there, is epoch N+1's."""
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
    """A Delta table as its readers see it: by what the entries of its log name."""

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
    """The epoch that the name of a file of epochal's carries."""
    return int(file.rpartition("/")[2].split("-")[1])


def data_files(folder: Path) -> Iterator[str]:
    """Every file that a reader of the folder takes for data: Spark and Hive pass over _ and dot names."""
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
    """The generations that have staged something of an epoch."""
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
