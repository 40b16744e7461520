"""Staged rows as text: lines of COPY, cut into pieces anywhere, in the order of their numbers.

They are read and copied in turns, through one connection and in little memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg

from epochal.sinks.postgres.layout import of_parts

AT_ONCE = 16  # pieces, of a MiB at most


def size(db: psycopg.Connection[Any], relation: str, parts: Sequence[int]) -> int:
    """How many bytes of text the parts of a staged table have; none of it is read for that."""
    found = db.execute(f"SELECT sum(octet_length(data)) FROM {relation} WHERE {of_parts(parts)}").fetchone()
    return int(found[0] or 0) if found is not None else 0


def lines(db: psycopg.Connection[Any], relation: str, parts: Sequence[int]) -> Iterator[bytes]:
    """The text, in blocks of whole lines."""
    query = f"SELECT data FROM {relation} WHERE {of_parts(parts)} ORDER BY part, number"
    with closing(db.cursor("pieces", binary=True)) as cursor:
        cursor.execute(query)
        rest = b""
        while found := cursor.fetchmany(AT_ONCE):
            text = b"".join((rest, *(data for (data,) in found)))
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            if end:
                yield text[:end] if rest else text
        if rest:
            yield rest  # the server says what it lacks


def copy(db: psycopg.Connection[Any], blocks: Iterator[bytes], into: str) -> int:
    """Copy lines into columns of a table; how many rows it took."""
    rows = 0
    for block in blocks:
        cursor = db.cursor()
        with cursor.copy(f"COPY {into} FROM STDIN".encode()) as copying:
            copying.write(block)
        rows += cursor.rowcount
    return rows
