"""How a record is written to a file: canonical JSON with a checksum.

::

    {"check":"<sha256 of the record's canonical JSON>","record":{"format":1,"kind":"decided",...}}

Canonical means sorted keys, no spaces, ASCII, one newline at the end. A file that is not byte for byte what its record
would be written as is torn or foreign: an error that names the file, never skipped.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json, canonical


def to_bytes(record: dict[str, Json]) -> bytes:
    """The file of a record, which has a ``format`` of its own."""
    check = hashlib.sha256(canonical(record)).hexdigest()
    return canonical({"check": check, "record": record}) + b"\n"


def from_bytes(path: str, data: bytes, *, version: int, what: str = "format") -> dict[str, Any]:
    """The record in a file, or JournalCorrupt that names the file and says why."""
    try:
        record: dict[str, Any] = json.loads(data)["record"]
        found = record["format"]
        written = to_bytes(record)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JournalCorrupt(f"{path}: torn or foreign ({len(data)} bytes); restore it from a copy") from None
    if written != data:
        raise JournalCorrupt(f"{path}: its checksum does not match its content; restore it from a copy")
    if found != version:
        raise JournalCorrupt(
            f"{path}: written in {what} {found}, this epochal reads format {version}; run the newer epochal that "
            "wrote it"
        )
    return record
