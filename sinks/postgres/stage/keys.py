"""Whether an epoch's rows keep the table's unique indexes, found without writing them.

The columns of an index are taken from the staged text, copied into a temporary table, and compared with each other and
with the table. So nothing reaches the table or the server's log before the epoch is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from epochal.sinks.postgres import commit, pieces
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import quoted
from epochal.sinks.postgres.stage.copying import text_of
from epochal.sinks.postgres.table import Table, Unique

Database = psycopg.Connection[Any]
KEYS = "pg_temp.epochal_keys"
# An index lookup for each key, as the insert does, whatever the planner knows of the table. It may be very large. What
# these settings do to its costs would have the server compile statements.
BY_LOOKUPS = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true)
"""


def can_check(table: Table, epoch: StagedEpoch, longest: int) -> bool:
    """Whether unique indexes are all that an insert could break, and these statements can know it."""
    plain = all(index.plain and {*index.columns} <= {*epoch.names} for index in table.unique)
    other = table.has_checks or table.has_triggers or table.may_fail(longest)
    return plain and table.can_compare and not other and epoch.mode == "append"


def taken(db: Database, table: Table, epoch: StagedEpoch, staged: bytes | str) -> str | None:
    """The first unique index that has a key of the epoch already. UniqueViolation if a key is in the epoch twice."""
    with db.transaction(force_rollback=True):
        db.execute(BY_LOOKUPS)
        for index in table.unique:
            columns = ", ".join(f"k{n} {table.columns[name].declared}" for n, name in enumerate(index.columns))
            db.execute(f"CREATE TEMPORARY TABLE epochal_keys ({columns})")
            places = [epoch.names.index(name) for name in index.columns]
            blocks = (fields(block, places, len(epoch.names)) for block in commit.text_of(db, epoch, staged))
            pieces.copy(db, blocks, KEYS)
            names = ", ".join(f"k{n}" for n in range(len(places)))
            # Named as the table's own: an error says this name.
            db.execute(f"CREATE UNIQUE INDEX {quoted(index.name)} ON {KEYS} ({names})")
            if _any_is_there(db, table, index):
                return index.name
            db.execute(f"DROP TABLE {KEYS}")
    return None


def fields(lines: bytes, places: Sequence[int], count: int) -> bytes:
    r"""Some of the fields of each line, as lines of COPY.

    >>> fields(b"a\t1\t\nb\\tc\t2\t\\N\n", [2, 0], 3)
    b'\ta\n\\N\tb\\tc\n'
    """
    names = [str(n) for n in range(count)]
    # With a line of names before them: of the first line the reader takes off a byte order mark.
    text = b"\t".join(name.encode() for name in names) + b"\n" + lines
    found = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(block_size=len(text), use_threads=False),
        csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            include_columns=[names[place] for place in places], column_types=dict.fromkeys(names, pa.large_binary())
        ),
    )
    parts: list[Any] = []
    for column in found.columns:
        parts += [pa.concat_arrays(column.chunks), pa.scalar(b"\t", pa.large_binary())]
    parts[-1] = pa.scalar(b"\n", pa.large_binary())
    return bytes(text_of(pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))))


def _any_is_there(db: Database, table: Table, index: Unique) -> bool:
    """Whether the table has a key. New keys are often above all that are there, which is cheap to see."""
    first = quoted(index.columns[0])
    ends = [f"(SELECT k0 FROM {KEYS} WHERE k0 IS NOT NULL ORDER BY k0 {order} LIMIT 1)" for order in ("", "DESC")]
    near = f"SELECT EXISTS (SELECT FROM ONLY {table.sql} t WHERE t.{first} BETWEEN {ends[0]} AND {ends[1]})"
    if db.execute(near).fetchone() == (False,):
        return False
    same = " AND ".join(f"t.{quoted(name)} = k.k{n}" for n, name in enumerate(index.columns))
    # OFFSET keeps it a lookup for each key: joined, all of a large table could be read.
    there = f"EXISTS (SELECT FROM ONLY {table.sql} t WHERE {same} OFFSET 0)"
    return db.execute(f"SELECT EXISTS (SELECT FROM {KEYS} k WHERE {there})").fetchone() == (True,)
