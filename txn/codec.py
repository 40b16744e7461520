"""The file format of a record: canonical JSON with a checksum.

::

    {"check":"<sha256 of the record's canonical JSON>","record":{"format":1,"kind":"decided",...}}

Canonical means sorted keys, no spaces, ASCII, one newline at the end. A file must be byte for byte what writing its
record again gives. Any other file is torn or foreign: an error that names it, never skipped. A large record is not
written again to find out: its bytes must have the checksum, which is that of the canonical ones.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from typing import Any

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json, canonical
from epochal.txn.state.memory import no_garbage_collection

LARGE = 1 << 13


def to_bytes(record: dict[str, Json]) -> bytes:
    """A record as bytes. The record holds its own ``format`` version."""
    inner = canonical(record)
    return b'{"check":"%b","record":%b}\n' % (hashlib.sha256(inner).hexdigest().encode(), inner)


def _has_its_checksum(data: bytes) -> bool:
    head, end = 10 + 64 + 11, len(data) - 2
    inner = memoryview(data)[head:end]
    check = hashlib.sha256(inner).hexdigest()
    return data[:head] == f'{{"check":"{check}","record":'.encode() and data[end:] == b"}\n"


def _parsed(data: bytes) -> dict[str, Any]:
    with no_garbage_collection() if len(data) > LARGE else nullcontext():
        record: dict[str, Any] = json.loads(data)["record"]
    return record


def from_bytes(path: str, data: bytes, *, version: int, what: str = "format") -> dict[str, Any]:
    """The record in a file, or JournalCorrupt that names the file and says why."""
    try:
        record = _parsed(data)
        written_in = record["format"]
        is_whole = _has_its_checksum(data) if len(data) > LARGE else to_bytes(record) == data
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JournalCorrupt(f"{path}: torn or foreign ({len(data)} bytes); restore it from a copy") from None
    if not is_whole:
        raise JournalCorrupt(f"{path}: its checksum does not match its content; restore it from a copy")
    if written_in != version:
        raise JournalCorrupt(
            f"{path}: written in {what} {written_in}, this epochal reads format {version}; run the newer epochal that "
            "wrote it"
        )
    return record
