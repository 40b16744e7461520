"""Counts what a changelog, a delta or a snapshot of HDFSBacked holds. Pure: bytes in, counts out.

The content is compressed, in frames of lz4 unless the session sets another codec. Then it is a sequence of records: in
the older layout, which deltas have too, ``length of key, key, length of value, value``, with -1 for a deletion and at
the end; in the newer one, which has column families, each record begins with a byte for its kind. Checkpoint format 2
puts a version and the lineage in front.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from epochal.spark_plugins.recovery.names import Version
from epochal.spark_plugins.recovery.stored import lineage

MAGIC = b"LZ4Block"
_STORED, _LZ4 = 0x10, 0x20
_HEADER = 21
LARGEST = 1 << 30  # bytes of a block
_END, _PUT, _DELETE, _MERGE = 0x00, 0x01, 0x10, 0x11
_length = struct.Struct(">i").unpack_from


@dataclass(frozen=True, slots=True)
class Changes:
    """What one file changes."""

    rows: int  # puts and deletes
    live: frozenset[bytes]  # the keys that it leaves with a value, if they were asked for
    gone: frozenset[bytes]  # the keys that it leaves without one
    lineage: tuple[Version, ...] = ()
    has_families: bool = False  # keys of Spark's own column families are among them


def plain(data: bytes, codec: str) -> bytes | None:
    """The content without its compression; None for a codec that cannot be read here."""
    if codec == "lz4":
        return _lz4(data)
    if codec == "zstd":
        return _zstd(data)
    return None


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    except OSError as fault:
        raise ValueError(f"not a state file in zstd: {fault}") from None


def _lz4(data: bytes) -> bytes:
    import pyarrow as pa

    codec: Any = pa.Codec("lz4_raw")
    parts, at = [], 0
    while at < len(data):
        if data[at : at + len(MAGIC)] != MAGIC or at + _HEADER > len(data):
            raise ValueError("not a state file in lz4, or a torn one")
        method = data[at + 8] & 0xF0
        packed, size = (int.from_bytes(data[at + n : at + n + 4], "little") for n in (9, 13))
        at += _HEADER
        if size == 0:
            continue  # the mark of the end
        block = data[at : at + packed]
        if len(block) < packed or size > LARGEST or method not in (_STORED, _LZ4):
            raise ValueError("a state file in lz4 is torn")
        at += packed
        try:
            parts.append(block if method == _STORED else codec.decompress(block, size, asbytes=True))
        except OSError as fault:
            raise ValueError(f"a state file in lz4 is torn: {fault}") from None
    return b"".join(parts)


def changes(content: bytes, *, keys: bool = False) -> Changes:
    """The records of a file. With `keys`, also which keys are left; one for several merged values."""
    try:
        version, at = _version(content)
        found: tuple[Version, ...] = ()
        if version >= 3:
            text, at = _text(content, at)
            found = lineage(text)
        has_families = version in (2, 4)
        rows, live, gone = (_tagged if has_families else _untagged)(content, at, keys=keys)
    except (struct.error, IndexError) as fault:
        raise ValueError(f"a state file ends in the middle of a record: {fault}") from None
    return Changes(rows, frozenset(live), frozenset(gone), found, has_families)


def _version(content: bytes) -> tuple[int, int]:
    """The version of the layout, and where the content goes on. The oldest has none."""
    size = int.from_bytes(content[:2], "big")
    text = content[2 : 2 + size]
    if 2 <= size <= 3 and text[:1] == b"v" and text[1:].isdigit():
        return int(text[1:]), 2 + size
    return 1, 0


def _text(content: bytes, at: int) -> tuple[str, int]:
    size = int.from_bytes(content[at : at + 2], "big")
    return content[at + 2 : at + 2 + size].decode("utf-8"), at + 2 + size


def _untagged(content: bytes, at: int, *, keys: bool) -> tuple[int, set[bytes], set[bytes]]:
    rows, live, gone = 0, set[bytes](), set[bytes]()
    while (size := _length(content, at)[0]) >= 0:
        key, at = at + 4, at + 4 + size
        value = _length(content, at)[0]
        if keys:
            one = content[key:at]
            (gone.discard if value >= 0 else live.discard)(one)
            (live.add if value >= 0 else gone.add)(one)
        at += 4 + max(value, 0)
        rows += 1
    return rows, live, gone


def _tagged(content: bytes, at: int, *, keys: bool) -> tuple[int, set[bytes], set[bytes]]:
    rows, live, gone = 0, set[bytes](), set[bytes]()
    while (kind := content[at]) != _END:
        if kind not in (_PUT, _DELETE, _MERGE):
            raise ValueError(f"a changelog has a record of an unknown kind, {kind:#04x}")
        size = _length(content, at + 1)[0]
        if size < 0:  # else what follows would be read from the end, perhaps for ever
            raise ValueError("a changelog has a key of a negative length")
        key, at = at + 5, at + 5 + size
        value = _length(content, at)[0]
        if keys:
            one = content[key:at]
            (live.discard if kind == _DELETE else gone.discard)(one)
            (gone.add if kind == _DELETE else live.add)(one)
        at += 4 + max(value, 0)
        rows += 1
    return rows, live, gone
