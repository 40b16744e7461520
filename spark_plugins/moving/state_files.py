"""The versions of Spark's state stores, by the names of their files. Pure: no I/O.

Epoch N reads version N and writes version N + 1. A store is a folder ``state/OPERATOR/PARTITION[/STORE]``::

    12.zip, 12.snapshot         all of version 12 (RocksDB, HDFSBacked)
    13.changelog, 13.delta      what version 13 changed
    13_7f….changelog, 12_7f….zip    the same in checkpoint format 2: several attempts may have written a version
    SSTs/….sst, logs/….log      files that zips of RocksDB list

Spark takes state that is newer than its logs without a word, so a copy at epoch N has no version above N + 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

WHOLE, CHANGES = ("zip", "snapshot"), ("changelog", "delta")
_FILE = re.compile(
    r"(?P<store>state/\d+/\d+(?:/.+)?)/(?P<version>\d+)(?:_[^./]+)?\.(?P<kind>zip|snapshot|changelog|delta)$"
)
CHECKSUM = ".crc"  # Spark's own, beside the file; Hadoop's begin with a dot


@dataclass
class Store:
    """The versions that one store has."""

    whole: set[int] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)

    @property
    def newest(self) -> int:
        return max(self.whole | self.changes)

    def lacks(self, version: int) -> int | None:
        """The first version without which `version` cannot be read; None if it can."""
        first = max((v for v in self.whole if v <= version), default=0)
        return next((v for v in range(first + 1, version + 1) if v not in self.changes), None)


def version_of(name: str) -> int | None:
    """The version that a file of a state store belongs to; None if it is of no single one.

    >>> version_of("state/0/1/12.zip"), version_of("state/0/1/left-keyToNumValues/3_7f.changelog.crc")
    (12, 3)
    """
    found = _FILE.match(name.removesuffix(CHECKSUM))
    return None if found is None else int(found["version"])


def stores(names: Iterable[str]) -> dict[str, Store]:
    """The stores, by folder."""
    found: dict[str, Store] = {}
    for name in names:
        parts = _FILE.match(name)
        if parts is not None:
            store = found.setdefault(parts["store"], Store())
            (store.whole if parts["kind"] in WHOLE else store.changes).add(int(parts["version"]))
    return found


def faults(there: Iterable[str], kept: Iterable[str], epoch: int) -> list[str]:
    """Why a copy of some files is no state at an epoch; empty if it is. `there` are the names before it was trimmed.

    A store may end before the epoch: of a partition that a rescaled query no longer has.

    >>> faults(["state/0/0/1.delta", "state/0/0/3.delta"], ["state/0/0/1.delta", "state/0/0/3.delta"], 2)
    ['state/0/0 has no version 2, which version 3 builds on']
    """
    before, after = stores(there), stores(kept)
    found = [f"{folder} has no version up to {epoch + 1} any more" for folder in before.keys() - after.keys()]
    for folder, store in sorted(after.items()):
        lacks = store.lacks(store.newest)
        if lacks is not None:
            found.append(f"{folder} has no version {lacks}, which version {store.newest} builds on")
    if after and max(store.newest for store in after.values()) < epoch + 1:
        found.append(f"no state has version {epoch + 1}, which epoch {epoch} wrote")
    return found
