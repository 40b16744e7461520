"""An entry of a batch as the protocol carries it: the statement's id, then each value with its length."""

from __future__ import annotations

import struct

Value = bytes | None


def head(query_id: bytes, count: int) -> bytes:
    """What stands before the values of an entry."""
    return b"\1" + struct.pack(">H", len(query_id)) + query_id + struct.pack(">H", count)


def value(raw: bytes) -> bytes:
    """One value of an entry."""
    return struct.pack(">i", len(raw)) + raw


def values(row: bytes) -> list[Value]:
    r"""The values of a staged row.

    >>> values(value(b"ab") + b"\xff\xff\xff\xff" + value(b""))
    [b'ab', None, b'']
    """
    found: list[Value] = []
    at = 0
    while at < len(row):
        (length,) = struct.unpack_from(">i", row, at)
        at += 4
        found.append(row[at : at + length] if length >= 0 else None)
        at += max(0, length)
    return found
