"""The open parts of a target and the buckets that await their marker, as the journal records them.

The state is a mapping, of which each epoch changes some keys:

=================================  =========================================================================
key                                value
=================================  =========================================================================
``target``                         where the pieces are
``000000000042 day=2026-11-16/``   what epoch 42 added to a bucket: ``at``, ``shape`` and ``files``, each
                                   as [name, bytes, rows]
``header csv 5d41402a``            the first bytes of a file of this shape, in base64
``awaited day=2026-11-16/``        when the time of this bucket ends, which has new rows and awaits its marker
=================================  =========================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from epochal.sinks.files.policies.rolling import Piece
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import checked_relative
from epochal.txn.model import Json

TARGET = "target"
HEADER = "header "
AWAITED = "awaited "


@dataclass(frozen=True, slots=True)
class OpenParts:
    """The pieces of open parts, headers by shape, and their target; the buckets that await their marker, and when."""

    target: str | None = None
    pieces: tuple[Piece, ...] = ()
    headers: Mapping[str, bytes] | None = None
    awaited: Mapping[str, float] = field(default_factory=dict)

    def header(self, shape: str) -> bytes:
        return (self.headers or {}).get(shape, b"")

    def to_state(self) -> dict[str, Json]:
        """The mapping for the journal."""
        if not self.pieces and not self.awaited:
            return {}
        entries: dict[str, Json] = {TARGET: self.target}
        for shape in sorted({piece.shape for piece in self.pieces}):
            if self.header(shape):
                entries[f"{HEADER}{shape}"] = base64.b64encode(self.header(shape)).decode("ascii")
        grouped: dict[tuple[int, str], list[Piece]] = {}
        for piece in self.pieces:
            grouped.setdefault((piece.epoch, piece.bucket), []).append(piece)
        for (epoch, bucket), pieces in grouped.items():
            files: list[Json] = [[p.name, p.bytes, p.rows] for p in sorted(pieces, key=lambda p: p.name)]
            entries[f"{epoch:012d} {bucket}"] = {"at": pieces[0].at, "shape": pieces[0].shape, "files": files}
        return entries | {f"{AWAITED}{bucket}": end for bucket, end in self.awaited.items()}


def open_parts_of(state: Mapping[str, Json]) -> OpenParts:
    """The open parts that a sink's state describes."""
    pieces: list[Piece] = []
    headers: dict[str, bytes] = {}
    awaited: dict[str, float] = {}
    target = state.get(TARGET)
    try:
        for key, value in state.items():
            if key.startswith(HEADER):
                headers[key.removeprefix(HEADER)] = base64.b64decode(str(value))
            elif key.startswith(AWAITED):
                awaited[_bucket(key.removeprefix(AWAITED))] = _seconds(key, value)
            elif key != TARGET:
                pieces.extend(_pieces(key, value))
    except (KeyError, TypeError, ValueError) as fault:
        raise JournalCorrupt(f"the journal's record of open parts cannot be read: {fault!r}") from None
    return OpenParts(str(target) if target is not None else None, tuple(pieces), headers, awaited)


def changes_between(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """The changes that lead from one state to the other; None removes a key."""
    gone: dict[str, Json] = {key: None for key in before if key not in after}
    return gone | {key: value for key, value in after.items() if before.get(key) != value}


def _pieces(key: str, value: Json) -> list[Piece]:
    epoch, _, bucket = key.partition(" ")
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
        found.append(Piece(int(epoch), _bucket(bucket), checked_relative(str(name)), length, rows, at, str(shape)))
    return found


def _bucket(folder: str) -> str:
    """A bucket's folder below the target, with a slash at its end; empty without buckets."""
    if folder:
        checked_relative(folder.removesuffix("/"))
    return folder


def _seconds(key: str, value: Json) -> float:
    if not isinstance(value, int | float):
        raise TypeError(key)
    return float(value)
