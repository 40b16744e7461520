"""Segments merged shard by shard: one shard of each is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from epochal.txn.state.segments import Segment
from epochal.txn.state.shards import Entries, merge_by_sink, overlapping, partition


def merged_blocks(
    segments: Sequence[Segment], shards: int, *, now: float, drop_before: float | None, between: Callable[[], None]
) -> Iterator[tuple[str, int, Entries]]:
    """The blocks of the segment that replaces these, oldest first: sink, shard and entries.

    With `drop_before`, nothing is older than these segments: keys that were deleted up to that time are forgotten. What
    was deleted later than `now`, because a clock went back since, counts as deleted now, or it would stay for too long.
    `between` is called after each shard.
    """
    readers = [_Reader(segment, shards) for segment in segments]
    for shard in range(shards):
        merged = merge_by_sink(found for reader in readers for found in reader.read(shard))
        for sink, entries in sorted(merged.items()):
            if drop_before is not None:
                deleted = ((key, min(at, now)) for key, at in entries.deleted.items())
                entries.deleted = {key: at for key, at in deleted if at > drop_before}
            yield sink, shard, entries
        between()


class _Reader:
    """Reads a segment in the shards of another layout, in their order. A block that is split is parsed once."""

    def __init__(self, segment: Segment, shards: int) -> None:
        self._segment, self._shards = segment, shards
        self._split: list[tuple[str, list[Entries]]] = []
        self._split_of = -1

    def read(self, shard: int) -> Iterator[tuple[str, Entries]]:
        own = self._segment.shards
        if own >= self._shards:
            yield from self._segment.read(shard, self._shards)
            return
        (coarse,) = overlapping(shard, self._shards, own)
        if coarse != self._split_of:
            blocks = self._segment.read(coarse, own)
            self._split = [(sink, partition(entries, self._shards)) for sink, entries in blocks]
            self._split_of = coarse
        for sink, parts in self._split:
            yield sink, parts[shard]
