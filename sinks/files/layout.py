"""Where everything is in a rolling-file target, and the names of published files.

::

    target/
      day=2026-11-16/part-000000000042-00000-1f0c9a2e.snappy.parquet
      _SUCCESS-000000000042-1f0c9a2e        with marker="epoch"; "bucket" puts _SUCCESS into buckets
      _epochal/                             readers of Spark and Hive ignore it
        lineages/LINEAGE.json               which streams write here, and whose place they took
        manifest/LINEAGE/000000000042.json  one file per epoch: what it published
        staged/LINEAGE/000000000042.000003/ one folder per attempt, removed when the epoch is done
          data/ ...                         what Spark's writer wrote: it was `written` until all tasks were done
          manifest.json, marker-0           what is published with it
        open/LINEAGE/000000000042/ ...      what epoch 42 added to parts that are still open
        compactions/000000000003.plan.json  also .done.json and .removed.json: which files replaced which
        compacting/000000000003-UNIQUE/     what compaction 3 joined, until it is published
        probe/                              on S3, for a moment (`storage/objects/probe.py`)

Names contain epoch and part, zero-padded, and the lineage, because two streams may share a target.
Nothing in them is random: a repeated commit arrives at the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from epochal.sinks.spark.names import ending_of_written
from epochal.sinks.storage.register import safe_name
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import below, checked_relative, join
from epochal.txn.model import Attempt, lineage_tag

HOME = "_epochal"
DATA = "data"
WRITTEN = "written"
MANIFEST = "manifest.json"
MARKER = "marker"
JOINED = "joined"
HEADER = "header"
OPEN = "open"
_ENDING = re.compile(r"part-\d{12}[^-/]*-\d{5,}-[^./]*(\.[A-Za-z0-9.]+)")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one target."""

    target: str

    @property
    def folders(self) -> list[str]:
        """The target and every folder above it.

        >>> Layout("hdfs://host:9000/lake/a").folders
        ['hdfs://host:9000/lake/a', 'hdfs://host:9000/lake', 'hdfs://host:9000/']
        """
        start = self.target.find("/", self.target.find("://") + 3) if "://" in self.target else 0
        root, parts = self.target[:start], self.target[start:].strip("/").split("/")
        return [f"{root}/{'/'.join(parts[:count])}" for count in range(len(parts), -1, -1)]

    @property
    def lineages(self) -> str:
        return join(self.target, HOME, "lineages")

    @property
    def manifests(self) -> str:
        return join(self.target, HOME, "manifest")

    def manifest(self, lineage: str) -> str:
        return join(self.manifests, safe_name(lineage))

    def manifest_name(self, attempt: Attempt) -> str:
        """An epoch's manifest, or a roll's, relative to the target."""
        name = attempt.number if attempt.roll else f"{attempt.epoch:012d}"
        return f"{HOME}/manifest/{safe_name(attempt.lineage)}/{name}.json"

    def staged(self, lineage: str) -> str:
        return join(self.target, HOME, "staged", safe_name(lineage))

    def attempt(self, attempt: Attempt) -> str:
        return join(self.staged(attempt.lineage), attempt.key)

    def open(self, lineage: str, epoch: int | None = None) -> str:
        """Where pieces of open parts are."""
        folder = join(self.target, HOME, "open", safe_name(lineage))
        return folder if epoch is None else join(folder, f"{epoch:012d}")

    def source(self, attempt: Attempt, name: str) -> str:
        """The path of what a handle names: a file of the attempt, or a piece of an open part."""
        if name.startswith(f"{OPEN}/"):
            return below(self.open(attempt.lineage), name.removeprefix(f"{OPEN}/"))
        return below(self.attempt(attempt), name)

    def published(self, name: str) -> str:
        """The path of a published file."""
        return join(self.target, visible(name))

    @property
    def compactions(self) -> str:
        """Where the records of compactions are."""
        return join(self.target, HOME, "compactions")

    @property
    def compacting(self) -> str:
        """Where compactions stage joined files."""
        return join(self.target, HOME, "compacting")

    @property
    def spark_metadata(self) -> str:
        """Where Spark's own file sink has its log; Spark's readers see only what that lists."""
        return join(self.target, "_spark_metadata")


def visible(name: str) -> str:
    """The name of a published file in a record, checked: below the target, and not in `_epochal`."""
    if checked_relative(name).partition("/")[0] == HOME:
        raise JournalCorrupt(
            f"a record names a place where nothing is published: {name!r}. It was changed; restore it from a copy"
        )
    return name


def part_name(attempt: Attempt, part: int, staged_name: str) -> str:
    """A published file's name; the ending comes from what Spark wrote.

    >>> part_name(Attempt("1f0c9a2e-77", 42, 3), 7, "part-00001-5a-c000.snappy.parquet")
    'part-000000000042-00007-1f0c9a2e.snappy.parquet'
    """
    maker = f"{attempt.epoch:012d}" + (f".{attempt.generation}.{attempt.roll}" if attempt.roll else "")
    return f"part-{maker}-{part:05d}-{lineage_tag(attempt.lineage)}{ending_of_written(staged_name) or ''}"


def joined_name(number: int, file: int, lineage: str, epoch: int, ending: str) -> str:
    """The name of a file that a compaction joined; no other compaction has its number.

    >>> joined_name(3, 0, "1f0c9a2e-77", 42, ".json")
    'part-000000000042.c3-00000-1f0c9a2e.json'
    """
    return f"part-{epoch:012d}.c{number}-{file:05d}-{lineage_tag(lineage)}{ending}"


def ending_of(path: str) -> str:
    """The ending of a published file: its format and codec. Empty if it is not named as they are.

    >>> ending_of("day=2/part-000000000042-00007-1f0c9a2e.snappy.parquet")
    '.snappy.parquet'
    """
    found = _ENDING.fullmatch(path.rpartition("/")[2])
    return found.group(1) if found else ""


def marker_name(attempt: Attempt) -> str:
    """An epoch's marker."""
    return f"_SUCCESS-{attempt.epoch:012d}-{lineage_tag(attempt.lineage)}"
