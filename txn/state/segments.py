r"""A segment: an immutable file with the changes of many epochs, folded. Millions of entries are read in seconds.

::

    EPOCHAL SEGMENT 1\n
    block ... block       zlib of [{"key": value, ...}, {"deleted key": seconds, ...}], for one sink and one shard
    footer                {"format": 1, "shards": 4, "blocks": [[sink, shard, offset, length, sha256, puts, deleted]]}
    length of the footer  8 bytes, big-endian

All JSON is canonical. The state record that lists a segment has the footer's sha256, and the footer that of each block:
one chain of checksums, whether all blocks are read or some. A whole block is parsed by one call, which is what makes
reading quick; compression is the fastest that zlib has, as reading from a remote file system is what it helps.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json, canonical
from epochal.txn.state.memory import no_garbage_collection
from epochal.txn.state.shards import Entries, overlapping, select

FORMAT = 1
MAGIC = b"EPOCHAL SEGMENT 1\n"
LEVEL = 1
_LENGTH = 8


class SegmentLost(JournalCorrupt):
    """A segment that the newest state record lists is missing or damaged."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as a state record lists it."""

    name: str
    check: str  # sha256 of its footer
    bytes: int
    puts: int
    deleted: int
    through: int  # the last epoch whose changes are in it
    clean: bool  # the result of a merge: no key in it is in an older segment

    @property
    def entries(self) -> int:
        return self.puts + self.deleted

    def to_json(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_json(value: Any) -> SegmentRef:
        kinds = (str, str, int, int, int, int, bool)
        fields = [value[name] for name in SegmentRef.__slots__]
        if len(value) != len(fields) or any(type(f) is not k for f, k in zip(fields, kinds, strict=True)):
            raise TypeError(f"segment {value!r}")
        if "/" in fields[0]:
            raise ValueError(f"segment {fields[0]!r} is outside of the journal")
        return SegmentRef(*fields)


@dataclass(frozen=True, slots=True)
class Block:
    """Where the entries of one sink and one shard are."""

    sink: str
    shard: int
    offset: int
    length: int
    check: str
    puts: int
    deleted: int


class SegmentWriter:
    """Builds a segment in memory, a block at a time."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._parts = [MAGIC]
        self._length = len(MAGIC)
        self._blocks: list[Json] = []
        self.puts = self.deleted = 0

    def add(self, sink: str, shard: int, entries: Entries) -> None:
        """Add the entries of one sink and one shard."""
        if not entries:
            return
        content: Json = [entries.puts, {**entries.deleted}]
        packed = zlib.compress(canonical(content), LEVEL)
        counts = len(entries.puts), len(entries.deleted)
        check = hashlib.sha256(packed).hexdigest()
        self._blocks.append([sink, shard, self._length, len(packed), check, *counts])
        self._parts.append(packed)
        self._length += len(packed)
        self.puts += counts[0]
        self.deleted += counts[1]

    def finish(self) -> tuple[bytes, str]:
        """The file's content, and the sha256 of its footer."""
        footer = canonical({"format": FORMAT, "shards": self._shards, "blocks": self._blocks})
        data = b"".join([*self._parts, footer, len(footer).to_bytes(_LENGTH, "big")])
        return data, hashlib.sha256(footer).hexdigest()


class Segment:
    """A segment that was read. Blocks are parsed when they are asked for."""

    def __init__(self, path: str, data: bytes, ref: SegmentRef) -> None:
        """Check the footer; JournalCorrupt, with the file's name, if it is not what the state record lists."""
        self._path, self._data, self.ref = path, data, ref
        end = len(data) - _LENGTH
        start = end - int.from_bytes(data[max(end, 0) :], "big")
        footer = data[max(start, 0) : max(end, 0)]
        if not data.startswith(MAGIC) or hashlib.sha256(footer).hexdigest() != ref.check:
            raise self._corrupt("torn, or not the segment that the journal lists")
        content = json.loads(footer)
        if content["format"] != FORMAT:
            raise self._corrupt(f"written in format {content['format']}, this epochal reads {FORMAT}")
        self.shards: int = content["shards"]
        self.blocks = [Block(*block) for block in content["blocks"]]

    def raw(self, block: Block) -> bytes:
        """A block's JSON. Most of its time it holds no lock of the interpreter, so threads can do it side by side."""
        packed = memoryview(self._data)[block.offset : block.offset + block.length]
        if hashlib.sha256(packed).hexdigest() != block.check:
            raise self._corrupt("a checksum does not match")
        return zlib.decompress(packed)

    def read(self, shard: int, shards: int) -> Iterator[tuple[str, Entries]]:
        """The entries of one shard of any layout, by sink."""
        wanted = set(overlapping(shard, shards, self.shards))
        for block in self.blocks:
            if block.shard in wanted:
                entries = parsed(self.raw(block))
                yield block.sink, entries if self.shards >= shards else select(entries, shard, shards)

    def _corrupt(self, why: str) -> SegmentLost:
        return SegmentLost(f"{self._path}: {why}; restore it from a copy")


def parsed(raw: bytes) -> Entries:
    """The entries in a block's JSON."""
    with no_garbage_collection():
        puts, deleted = json.loads(raw)
    return Entries(puts, deleted)
