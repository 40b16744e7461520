"""Segments on a file system: written by create-if-absent, restored side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from epochal.txn.files import Files, join
from epochal.txn.json_value import Json
from epochal.txn.state.memory import no_garbage_collection
from epochal.txn.state.segments import Block, Segment, SegmentLost, SegmentRef, SegmentWriter, parsed
from epochal.txn.state.shards import Entries, merge_by_sink, partition, shards_for

SIDE_BY_SIDE = 1 << 20  # bytes from which on threads are worth their start
READERS = 4  # threads that read and decompress; parsing is one thread's work
AHEAD = 8  # blocks that are decompressed before they are needed

Given = TypeVar("Given")
Made = TypeVar("Made")


def segment_name(number: int, place: int, check: str) -> str:
    """The name of a segment that is written for a state record: by its content, so that two drivers cannot collide."""
    return f"m{number:012d}-{place:02d}-{check[:16]}.seg"


def number_of_segment(name: str) -> int | None:
    """The state record for which a segment was written; None if the name is not a segment's."""
    number, dash, _ = name[1:].partition("-")
    is_segment = name.startswith("m") and name.endswith(".seg") and bool(dash)
    return int(number) if is_segment and number.isdecimal() else None


class SegmentFiles:
    """The segments in one journal's folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder

    def __repr__(self) -> str:
        return "segments"

    def write(self, states: Mapping[str, Entries], *, number: int, place: int, through: int, clean: bool) -> SegmentRef:
        """Write the entries of some sinks as one segment, for a state record that is to be created."""
        shards = shards_for(sum(map(len, states.values())))
        parts = {sink: partition(entries, shards) for sink, entries in states.items()}
        blocks = ((sink, shard, part[shard]) for shard in range(shards) for sink, part in parts.items())
        return self.write_blocks(blocks, shards, number=number, place=place, through=through, clean=clean)

    def write_blocks(
        self,
        blocks: Iterable[tuple[str, int, Entries]],
        shards: int,
        *,
        number: int,
        place: int,
        through: int,
        clean: bool,
    ) -> SegmentRef:
        """Write a segment a block at a time: sink, shard and entries."""
        writer = SegmentWriter(shards)
        for sink, shard, entries in blocks:
            writer.add(sink, shard, entries)
        data, check = writer.finish()
        name = segment_name(number, place, check)
        self._files.create(join(self._folder, name), data)  # if it is there, it has this content
        return SegmentRef(name, check, len(data), writer.puts, writer.deleted, through, clean)

    def open(self, refs: Sequence[SegmentRef]) -> list[Segment]:
        """Read segments, side by side; FileNotFoundError if one is gone."""
        if len(refs) < 2 or sum(ref.bytes for ref in refs) < SIDE_BY_SIDE:
            return [self._open(ref) for ref in refs]
        with ThreadPoolExecutor(min(READERS, len(refs)), "epochal-state") as pool:
            return list(pool.map(self._open, refs))

    def _open(self, ref: SegmentRef) -> Segment:
        path = join(self._folder, ref.name)
        return Segment(path, self._files.read(path), ref)

    def restore(self, refs: Sequence[SegmentRef], shard: int = 0, shards: int = 1) -> dict[str, dict[str, Json]]:
        """The state of every sink after these segments, oldest first: all of it, or one shard of any layout.

        FileNotFoundError if a segment is gone: then a newer state record is there, which does not list it.
        """
        if shards > 1:
            return {sink: entries.puts for sink, entries in read_shard(self.open(refs), shard, shards).items()}
        states: dict[str, dict[str, Json]] = {}
        with no_garbage_collection():
            for segment in self.open(refs):
                for block, raw in _read_ahead(segment, segment.blocks):
                    state, entries = states.setdefault(block.sink, {}), parsed(raw)
                    for key in entries.deleted:
                        state.pop(key, None)
                    state.update(entries.puts)
        return states


def read_shard(segments: Sequence[Segment], shard: int, shards: int) -> dict[str, Entries]:
    """The entries of one shard of any layout in some segments, oldest first, merged by sink."""
    return merge_by_sink(found for segment in segments for found in segment.read(shard, shards))


def missing(path: str) -> SegmentLost:
    """The error of a state record that lists a segment which is not there."""
    return SegmentLost(
        f"{path}: a segment of the sinks' state is missing. A driver that runs has the state in memory, and writes it "
        "anew once another epoch is done; if none runs, restore the journal from a copy"
    )


def _read_ahead(segment: Segment, blocks: Sequence[Block]) -> Iterator[tuple[Block, bytes]]:
    """The JSON of each block, decompressed in other threads while the caller parses."""
    if segment.ref.bytes < SIDE_BY_SIDE:
        yield from ((block, segment.raw(block)) for block in blocks)
        return
    with ThreadPoolExecutor(READERS, "epochal-state") as pool:
        yield from _windowed(pool, segment.raw, blocks)


def _windowed(
    pool: ThreadPoolExecutor, work: Callable[[Given], Made], given: Sequence[Given]
) -> Iterator[tuple[Given, Made]]:
    waiting: deque[tuple[Given, Future[Made]]] = deque()
    for one in given:
        waiting.append((one, pool.submit(work, one)))
        if len(waiting) > AHEAD:
            first, future = waiting.popleft()
            yield first, future.result()
    for first, future in waiting:
        yield first, future.result()
