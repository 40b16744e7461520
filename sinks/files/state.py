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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from epochal.sinks.files.policies.rolling import Piece
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import checked_relative
from epochal.txn.model import Json
from epochal.txn.state.keys import entry_key, key_of_entry

TARGET = "target"
HEADER = "header"
AWAITED = "awaited"
PIECE = "piece"
_OTHERS = f"{HEADER} ", f"{AWAITED} "


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the state that is no piece. Without a value, it is no longer there."""

    kind: str
    key: str = ""  # the bucket, or the shape
    text: str | None = None
    header: bytes | None = None
    end: float | None = None


class Added(NamedTuple):
    """What one epoch added to a bucket, in sum. A start makes one for each entry, so it must be made quickly."""

    epoch: int
    bucket: str
    shape: str
    at: float
    bytes: int
    rows: int  # those that were counted
    pieces: int


@dataclass(frozen=True, slots=True)
class OpenParts:
    """All that is open: for audits, and for tests of what follows it step by step."""

    target: str | None = None
    pieces: tuple[Piece, ...] = ()
    headers: Mapping[str, bytes] = field(default_factory=dict)
    awaited: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def readable() -> Iterator[None]:
    """Entries of the state are decoded in here: one that cannot be read is JournalCorrupt."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AssertionError) as fault:
        raise JournalCorrupt(f"the journal's record of open parts cannot be read: {fault!r}") from None


def added_of(flat: str, value: Json) -> Added:
    """What an entry of pieces says that an epoch added to a bucket."""
    number, bucket = _epoch_and_bucket(flat)
    files, at, shape = _read(flat, value)
    if len(files) == 1:  # nearly always, and there may be very many
        ((_, length, rows),) = files
        return Added(number, bucket, shape, at, length, rows or 0, 1)
    length, count = sum(length for _, length, _ in files), sum(rows or 0 for *_, rows in files)
    return Added(number, bucket, shape, at, length, count, len(files))


def pieces_of(flat: str, value: Json) -> tuple[Piece, ...]:
    """The pieces themselves."""
    number, bucket = _epoch_and_bucket(flat)
    files, at, shape = _read(flat, value)
    return tuple(Piece(number, bucket, name, length, rows, at, shape) for name, length, rows in files)


def entry_of(flat: str, value: Json) -> Entry:
    """An entry of the state that is no piece."""
    if flat == TARGET:
        return Entry(TARGET, text=None if value is None else str(value))
    if (shape := key_of_entry(HEADER, flat)) is not None:
        return Entry(HEADER, shape, header=None if value is None else base64.b64decode(str(value)))
    bucket = key_of_entry(AWAITED, flat)
    assert bucket is not None  # what else there is are pieces
    return Entry(AWAITED, _bucket(bucket), end=None if value is None else _seconds(flat, value))


def is_piece(flat: str) -> bool:
    """Whether a key of the state is of pieces."""
    return flat != TARGET and not flat.startswith(_OTHERS)


def bucket_of(flat: str) -> str:
    """The bucket of a key of pieces."""
    return _epoch_and_bucket(flat)[1]


def piece_key(epoch: int, bucket: str) -> str:
    """The key of what an epoch added to a bucket."""
    return entry_key(PIECE, legacy_key(epoch, bucket))


def legacy_key(epoch: int, bucket: str) -> str:
    """The same as older versions wrote it."""
    return f"{epoch:012d} {bucket}"


def value_of(open_: Sequence[Piece] | bytes) -> Json:
    """The value of an entry: pieces of one epoch and bucket, or a header."""
    if isinstance(open_, bytes):
        return base64.b64encode(open_).decode("ascii")
    files: list[Json] = [[p.name, p.bytes, p.rows] for p in sorted(open_, key=lambda p: p.name)]
    return {"at": open_[0].at, "shape": open_[0].shape, "files": files}


def open_parts_of(state: Mapping[str, Json]) -> OpenParts:
    """The open parts that a sink's state describes."""
    with readable():
        entries = [entry_of(key, value) for key, value in state.items() if not is_piece(key)]
        pieces = [piece for key, value in state.items() if is_piece(key) for piece in pieces_of(key, value)]
    return OpenParts(
        next((entry.text for entry in entries if entry.kind == TARGET), None),
        tuple(pieces),
        {entry.key: entry.header for entry in entries if entry.header is not None},
        {entry.key: entry.end for entry in entries if entry.end is not None},
    )


def _epoch_and_bucket(flat: str) -> tuple[int, str]:
    key = key_of_entry(PIECE, flat)
    epoch, _, bucket = (flat if key is None else key).partition(" ")
    return int(epoch), _bucket(bucket)


def _read(flat: str, value: Json) -> tuple[list[tuple[str, int, int | None]], float, str]:
    """The files of an entry, checked: each with name, bytes and rows. The time of its epoch, and their shape."""
    assert isinstance(value, dict)
    files, at, shape = value["files"], _seconds(flat, value["at"]), value["shape"]
    if not isinstance(files, list):
        raise TypeError(flat)
    if not files:
        raise ValueError(flat)
    found = []
    for file in files:
        if not isinstance(file, list):
            raise TypeError(flat)
        name, length, rows = file
        if not isinstance(length, int) or not isinstance(rows, int | None):
            raise TypeError(flat)
        found.append((checked_relative(str(name)), length, rows))
    return found, at, str(shape)


def _bucket(folder: str) -> str:
    """A bucket's folder below the target, with a slash at its end; empty without buckets."""
    if folder:
        checked_relative(folder.removesuffix("/"))
    return folder


def _seconds(key: str, value: Json) -> float:
    if not isinstance(value, int | float):
        raise TypeError(key)
    return float(value)
