"""The file format of a record: canonical JSON with a checksum.

::

    {"check":"<sha256 of the record's canonical JSON>","record":{"format":1,"kind":"decided",...}}

Canonical means sorted keys, no spaces, ASCII, one newline at the end. A file must be byte for byte what writing its
record again gives. Any other file is torn or foreign: an error that names it, never skipped.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json, canonical


def to_bytes(record: dict[str, Json]) -> bytes:
    """A record as bytes. The record holds its own ``format`` version."""
    check = hashlib.sha256(canonical(record)).hexdigest()
    return canonical({"check": check, "record": record}) + b"\n"


def from_bytes(path: str, data: bytes, *, version: int, what: str = "format") -> dict[str, Any]:
    """The record in a file, or JournalCorrupt that names the file and says why."""
    try:
        record: dict[str, Any] = json.loads(data)["record"]
        written_in = record["format"]
        rewritten = to_bytes(record)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JournalCorrupt(f"{path}: torn or foreign ({len(data)} bytes); restore it from a copy") from None
    if rewritten != data:
        raise JournalCorrupt(f"{path}: its checksum does not match its content; restore it from a copy")
    if written_in != version:
        raise JournalCorrupt(
            f"{path}: written in {what} {written_in}, this epochal reads format {version}; run the newer epochal that "
            "wrote it"
        )
    return record
