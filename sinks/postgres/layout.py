"""What epochal keeps in the database: a schema of its own, `epochal` unless `ledger_schema` names another.

::

    claims                  who writes to a table: one row a table, whose lock is the fence
    epochs                  the ledger: which epochs a table shows, and from which attempt
    staged                  the attempts that have staged rows; those of a small one are in the column `data`
    staged_<hash>           the rows of one large attempt, typed as the table's columns are; or, where Spark has checked
                            all about them, as lines of COPY in numbered pieces

The tables are logged: what is staged must survive a crash of the server and a failover, because Spark may have
checkpointed its epoch. An unlogged table is empty after either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

PART, DELETED = "part", "deleted"  # columns of a staged table besides c0, c1, ... and o0, o1, ...
PIECE = (PART, "number", "data")  # the columns of a staged table that has text
KEPT = 10_000  # epochs of a stream in the ledger

TABLES = """\
CREATE TABLE IF NOT EXISTS {schema}.claims (
    target text PRIMARY KEY, version bigint NOT NULL, claims jsonb NOT NULL, adds boolean NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.epochs (
    target text, lineage text, epoch bigint, relation regclass NOT NULL, generation integer NOT NULL,
    start text NOT NULL, offsets text NOT NULL, "rows" bigint NOT NULL, digest text, columns jsonb NOT NULL,
    shown_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (target, lineage, epoch));
CREATE TABLE IF NOT EXISTS {schema}.staged (
    target text, lineage text, attempt text, data bytea, PRIMARY KEY (target, lineage, attempt));
"""


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it.

    >>> quoted('a "b"') == '"a ""b""' + '"'
    True
    """
    return '"' + name.replace('"', '""') + '"'


def own(schema: str, table: str) -> str:
    """One of the tables above, by its full name."""
    return f"{quoted(schema)}.{quoted(table)}"


def staged_table(target: str, lineage: str, attempt: str) -> str:
    """The name of the table in which an attempt's rows are staged."""
    return "staged_" + hashlib.sha256(f"{target}\0{lineage}\0{attempt}".encode()).hexdigest()[:40]


def of_parts(parts: Sequence[int]) -> str:
    """A condition for the rows of these parts of a staged table.

    >>> of_parts([7, 8])
    "part = ANY ('{7,8}'::bigint[])"
    """
    return f"{PART} = ANY ('{{{','.join(map(str, parts))}}}'::bigint[])"


def tables(schema: str) -> str:
    """The statements that make epochal's tables in their schema."""
    return TABLES.format(schema=quoted(schema))
