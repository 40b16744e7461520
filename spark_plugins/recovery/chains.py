"""Which files a recovery of one store reads: the newest snapshot, and the changes after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from epochal.spark_plugins.recovery.names import Version, VersionFile


@dataclass(frozen=True, slots=True)
class Sized:
    """A file and its length."""

    file: VersionFile
    bytes: int


@dataclass(frozen=True, slots=True)
class Chain:
    """What is read to restore a version. `extent` is how many versions are replayed after the snapshot."""

    version: int
    snapshot: Sized | None  # None: every version is replayed from the empty store
    replayed: tuple[Sized, ...]  # oldest first
    missing: tuple[int, ...] = ()  # versions that would have to be replayed and have no file

    @property
    def extent(self) -> int:
        return len(self.replayed) + len(self.missing)

    @property
    def replay_bytes(self) -> int:
        return sum(file.bytes for file in self.replayed)


def chain(files: Iterable[Sized], version: int) -> Chain:
    """The chain of a version by numbers, as in checkpoint format 1."""
    own = [file for file in files if file.file.version.number <= version]
    snapshot = max(
        (file for file in own if file.file.part.is_snapshot), key=lambda file: file.file.version.number, default=None
    )
    base = 0 if snapshot is None else snapshot.file.version.number
    deltas = {file.file.version.number: file for file in own if not file.file.part.is_snapshot}
    wanted = range(base + 1, version + 1)
    return Chain(
        version,
        snapshot,
        tuple(deltas[number] for number in wanted if number in deltas),
        tuple(number for number in wanted if number not in deltas),
    )


def chain_by_lineage(files: Iterable[Sized], line: Sequence[Version]) -> Chain:
    """The chain of a version by its lineage, oldest first and itself last, as in checkpoint format 2.

    Files of attempts that did not become the epoch are passed over.
    """
    snapshots, deltas = dict[Version, Sized](), dict[Version, Sized]()
    for file in files:
        (snapshots if file.file.part.is_snapshot else deltas)[file.file.version] = file
    base = max((place for place, one in enumerate(line) if one in snapshots), default=-1)
    wanted = line[base + 1 :]
    # A lineage goes back to a snapshot. Where none is left, it must begin with the first version.
    first = line[0].number if line else 1
    before = tuple(range(1, first)) if base < 0 else ()
    return Chain(
        line[-1].number if line else 0,
        snapshots[line[base]] if base >= 0 else None,
        tuple(deltas[one] for one in wanted if one in deltas),
        before + tuple(one.number for one in wanted if one not in deltas),
    )
