"""The open parts of a target, as the journal keeps them: a mapping that each epoch changes a little.

=================================  =========================================================================
key                                value
=================================  =========================================================================
``target``                         where the pieces lie
``000000000042 day=2026-11-16/``   what epoch 42 added to a bucket: ``at``, ``shape`` and ``files``, each
                                   as [name, bytes, rows]
``header csv 5d41402a``            what a file of this shape begins with, in base64
=================================  =========================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from epochal.sinks.files.rolling import Piece
from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json

TARGET = "target"
HEADER = "header "


@dataclass(frozen=True, slots=True)
class Kept:
    """What is open: pieces, headers by shape, and the target that they lie in."""

    target: str | None = None
    pieces: tuple[Piece, ...] = ()
    headers: Mapping[str, bytes] | None = None

    def header(self, shape: str) -> bytes:
        return (self.headers or {}).get(shape, b"")


def decode(kept: Mapping[str, Json]) -> Kept:
    """What a journal's mapping says."""
    pieces: list[Piece] = []
    headers: dict[str, bytes] = {}
    target = kept.get(TARGET)
    try:
        for key, value in kept.items():
            if key.startswith(HEADER):
                headers[key.removeprefix(HEADER)] = base64.b64decode(str(value))
            elif key != TARGET:
                pieces.extend(_pieces(key, value))
    except (KeyError, TypeError, ValueError) as fault:
        raise JournalCorrupt(f"the journal's note of open parts cannot be read: {fault!r}") from None
    return Kept(str(target) if target is not None else None, tuple(pieces), headers)


def encode(kept: Kept) -> dict[str, Json]:
    """The mapping for the journal."""
    if not kept.pieces:
        return {}
    entries: dict[str, Json] = {TARGET: kept.target}
    for shape in sorted({piece.shape for piece in kept.pieces}):
        if kept.header(shape):
            entries[f"{HEADER}{shape}"] = base64.b64encode(kept.header(shape)).decode("ascii")
    grouped: dict[tuple[int, str], list[Piece]] = {}
    for piece in kept.pieces:
        grouped.setdefault((piece.epoch, piece.bucket), []).append(piece)
    for (epoch, bucket), pieces in grouped.items():
        files: list[Json] = [[p.name, p.bytes, p.rows] for p in sorted(pieces, key=lambda p: p.name)]
        entries[f"{epoch:012d} {bucket}"] = {"at": pieces[0].at, "shape": pieces[0].shape, "files": files}
    return entries


def changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """What has to be recorded to come from one to the other."""
    gone: dict[str, Json] = {key: None for key in before if key not in after}
    return gone | {key: value for key, value in after.items() if before.get(key) != value}


def _pieces(key: str, value: Json) -> list[Piece]:
    epoch, _, bucket = key.partition(" ")
    assert isinstance(value, dict)
    files, at, shape = value["files"], value["at"], value["shape"]
    if not isinstance(files, list) or not isinstance(at, int | float):
        raise TypeError(key)
    found = []
    for file in files:
        if not isinstance(file, list):
            raise TypeError(key)
        name, length, rows = file
        if not isinstance(length, int) or not isinstance(rows, int | None):
            raise TypeError(key)
        found.append(Piece(int(epoch), bucket, str(name), length, rows, float(at), str(shape)))
    return found
