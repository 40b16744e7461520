"""Which entries belong together, and the operations on them: fold, partition, merge. Pure: no I/O.

A key belongs to one of `GROUPS` key groups. Shard i of n holds the groups from i * GROUPS / n on, so that the shards of
one layout are unions of those of a finer one. The number of shards is a power of two.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from epochal.txn.json_value import Json

GROUPS = 1024
ENTRIES = 4096  # of a shard, about: one block is parsed by one call


def group_of(key: str) -> int:
    """The key group of a key: the same in every process and version."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % GROUPS


def shard_of(key: str, shards: int) -> int:
    """The shard of a key.

    >>> shard_of("a", 4) == shard_of("a", 1024) // 256
    True
    """
    return group_of(key) * shards // GROUPS


def shards_for(entries: int) -> int:
    """How many shards suit so many entries.

    >>> [shards_for(n) for n in (0, 4096, 4097, 1_000_000, 10**9)]
    [1, 1, 2, 256, 1024]
    """
    shards = 1
    while shards < GROUPS and entries > shards * ENTRIES:
        shards *= 2
    return shards


@dataclass(slots=True)
class Entries:
    """Changes, folded: for each key its value, or when it was deleted (seconds since 1970). No key is in both."""

    puts: dict[str, Json] = field(default_factory=dict)
    deleted: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.puts) + len(self.deleted)

    def fold(self, changes: Mapping[str, Json], at: float) -> None:
        """Apply the changes of one step, which come after all that are in it."""
        puts, deleted = self.puts, self.deleted
        for key, value in changes.items():
            if value is None:
                puts.pop(key, None)
                deleted[key] = at
            else:
                puts[key] = value
                deleted.pop(key, None)

    def add(self, newer: Entries) -> None:
        """Apply newer entries."""
        if newer.deleted:
            for key in newer.deleted:
                self.puts.pop(key, None)
            self.deleted.update(newer.deleted)
        if self.deleted:
            for key in self.deleted.keys() & newer.puts.keys():
                del self.deleted[key]
        self.puts.update(newer.puts)


def partition(entries: Entries, shards: int) -> list[Entries]:
    """The entries of each shard."""
    if shards == 1:
        return [entries]
    parts = [Entries() for _ in range(shards)]
    for key, value in entries.puts.items():
        parts[shard_of(key, shards)].puts[key] = value
    for key, at in entries.deleted.items():
        parts[shard_of(key, shards)].deleted[key] = at
    return parts


def merge(parts: Iterable[Entries]) -> Entries:
    """Entries of several shards, or of several times with the oldest first, as one."""
    whole = Entries()
    for part in parts:
        whole.add(part)
    return whole


def merge_by_sink(parts: Iterable[tuple[str, Entries]]) -> dict[str, Entries]:
    """Entries of some sinks, the oldest first, as one for each sink. The first ones of a sink are changed in place."""
    merged: dict[str, Entries] = {}
    for sink, entries in parts:
        if sink in merged:
            merged[sink].add(entries)
        else:
            merged[sink] = entries
    return merged


def select(entries: Entries, shard: int, shards: int) -> Entries:
    """The entries of one shard."""
    if shards == 1:
        return entries
    return Entries(
        {key: value for key, value in entries.puts.items() if shard_of(key, shards) == shard},
        {key: at for key, at in entries.deleted.items() if shard_of(key, shards) == shard},
    )


def overlapping(shard: int, shards: int, others: int) -> Sequence[int]:
    """The shards of another layout that hold keys of a shard.

    >>> list(overlapping(1, 2, 8)), list(overlapping(5, 8, 2))
    ([4, 5, 6, 7], [1])
    """
    if others >= shards:
        finer = others // shards
        return range(shard * finer, (shard + 1) * finer)
    return range(shard * others // shards, shard * others // shards + 1)
