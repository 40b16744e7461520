"""The open parts of a target and the buckets that await their marker, as the journal records them.

The state is a mapping, of which each epoch changes some keys:

======================================  ====================================================================
key                                     value
======================================  ====================================================================
``target``                              where the pieces are
``piece 000000000042 day=2026-11-16/``  what epoch 42 added to a bucket: ``at``, ``shape`` and ``files``, each
                                        as [name, bytes, rows]; older versions wrote no ``piece`` before it
``header csv 5d41402a``                 the first bytes of a file of this shape, in base64
``awaited day=2026-11-16/``             when the time of this bucket ends, which has new rows and awaits its
                                        marker
======================================  ====================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epochal.sinks.files.policies.rolling import Piece
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import checked_relative
from epochal.txn.model import Json
from epochal.txn.state.keys import key_of_entry

TARGET = "target"
HEADER = "header"
AWAITED = "awaited"
PIECE = "piece"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the state. Without a value, it is no longer there."""

    kind: str
    key: str = ""  # the bucket, or the shape
    epoch: int = -1
    pieces: tuple[Piece, ...] = ()
    text: str | None = None
    header: bytes | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class OpenParts:
    """All that is open: for audits, and for tests of what follows it step by step."""

    target: str | None = None
    pieces: tuple[Piece, ...] = ()
    headers: Mapping[str, bytes] = field(default_factory=dict)
    awaited: Mapping[str, float] = field(default_factory=dict)


def entry_of(flat: str, value: Json) -> Entry:
    """An entry of the state by its key; JournalCorrupt if it cannot be read."""
    try:
        if (key := key_of_entry(PIECE, flat)) is not None:  # first: nearly all are
            return _piece_entry(flat, key, value)
        if flat == TARGET:
            return Entry(TARGET, text=None if value is None else str(value))
        if (shape := key_of_entry(HEADER, flat)) is not None:
            return Entry(HEADER, shape, header=None if value is None else base64.b64decode(str(value)))
        if (bucket := key_of_entry(AWAITED, flat)) is not None:
            return Entry(AWAITED, _bucket(bucket), end=None if value is None else _seconds(flat, value))
        return _piece_entry(flat, flat, value)
    except (KeyError, TypeError, ValueError, AssertionError) as fault:
        raise JournalCorrupt(f"the journal's record of open parts cannot be read: {fault!r}") from None


def piece_key(epoch: int, bucket: str) -> str:
    """The key of what an epoch added to a bucket."""
    return f"{epoch:012d} {bucket}"


def value_of(open_: Sequence[Piece] | bytes) -> Json:
    """The value of an entry: pieces of one epoch and bucket, or a header."""
    if isinstance(open_, bytes):
        return base64.b64encode(open_).decode("ascii")
    files: list[Json] = [[p.name, p.bytes, p.rows] for p in sorted(open_, key=lambda p: p.name)]
    return {"at": open_[0].at, "shape": open_[0].shape, "files": files}


def open_parts_of(state: Mapping[str, Json]) -> OpenParts:
    """The open parts that a sink's state describes."""
    entries = [entry_of(key, value) for key, value in state.items()]
    return OpenParts(
        next((entry.text for entry in entries if entry.kind == TARGET), None),
        tuple(piece for entry in entries for piece in entry.pieces),
        {entry.key: entry.header for entry in entries if entry.header is not None},
        {entry.key: entry.end for entry in entries if entry.end is not None},
    )


def _piece_entry(flat: str, key: str, value: Json) -> Entry:
    epoch, _, bucket = key.partition(" ")
    number = int(epoch)
    return Entry(PIECE, _bucket(bucket), number, () if value is None else _pieces(flat, number, bucket, value))


def _pieces(key: str, epoch: int, bucket: str, value: Json) -> tuple[Piece, ...]:
    assert isinstance(value, dict)
    files, at, shape = value["files"], _seconds(key, value["at"]), value["shape"]
    if not isinstance(files, list):
        raise TypeError(key)
    found = []
    for file in files:
        if not isinstance(file, list):
            raise TypeError(key)
        name, length, rows = file
        if not isinstance(length, int) or not isinstance(rows, int | None):
            raise TypeError(key)
        found.append(Piece(epoch, bucket, checked_relative(str(name)), length, rows, at, str(shape)))
    return tuple(found)


def _bucket(folder: str) -> str:
    """A bucket's folder below the target, with a slash at its end; empty without buckets."""
    if folder:
        checked_relative(folder.removesuffix("/"))
    return folder


def _seconds(key: str, value: Json) -> float:
    if not isinstance(value, int | float):
        raise TypeError(key)
    return float(value)
