"""Compares the ledger and the table with the journal. Reads only.

The ledger has the number of rows of each epoch. The rows themselves can be counted only where they say which epoch they
came from: in a column that the sink fills, for rows that are inserted and never replaced.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg

from epochal.participant import ROWS_NOT_READ, Difference, RowDigest, Scope, StoreReport, digest_text
from epochal.sinks.postgres import digests
from epochal.sinks.postgres.layout import quoted
from epochal.sinks.postgres.ledger import Ledger
from epochal.sinks.postgres.table import Table

UNCOUNTED = {
    "append": "rows do not say which epoch they came from, so they were not counted: set epoch_column for that. The "
    "audit checked only the ledger",
    "upsert": "rows that an upsert has written may have been replaced or deleted since, so they cannot be counted: the "
    "audit checked only the ledger",
    "accumulate": "totals do not show which rows they were added up from: the audit checked only the ledger",
}
SHARED = "other streams have written to the table, and their epochs have the same numbers: the rows were not counted"


def audited(
    db: psycopg.Connection[Any], scope: Scope, ledger: Ledger, table: Table, *, mode: str, column: str | None
) -> StoreReport:
    """What the ledger records of a stream, and the rows of each epoch that the table has."""
    found = ledger.recorded(db, scope.lineage, table.oid)
    recorded = {epoch: rows for epoch, (rows, _) in found.items()}
    epochs: dict[int, RowDigest] = {}
    differences: tuple[Difference, ...] = ()
    unproven: tuple[str, ...] = ()
    if column is None or column not in table.columns:
        unproven = (UNCOUNTED[mode],)
    elif ledger.has_others(db, scope.lineage, table.oid):
        unproven = (SHARED,)
    elif scope.fast:
        unproven = (ROWS_NOT_READ,)
    else:
        scope.progress(f"counting the rows of {table.sql}")
        epochs = {**dict.fromkeys(recorded, RowDigest()), **_rows(db, table, found, column)}
        there = digests.of_rows(db, table.sql, (), f"{quoted(column)} IS NOT NULL", by=quoted(column))
        first = min(recorded, default=0)
        differences = tuple(
            Difference(f"{rows} rows have this epoch in {column}, and the ledger has no such epoch", epoch)
            for epoch, (rows, _) in sorted(there.items())
            if epoch not in recorded and epoch >= first
        )
    return StoreReport(
        epochs_present=frozenset(recorded),
        complete_from=min(recorded, default=0),
        recorded=recorded,
        epochs=epochs,
        differences=differences,
        unproven=unproven,
    )


def _rows(
    db: psycopg.Connection[Any], table: Table, found: dict[int, tuple[RowDigest, tuple[str, ...]]], column: str
) -> dict[int, RowDigest]:
    """The rows that are there of each epoch, digested over the columns that the epoch has written."""
    by_columns: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for epoch, (rows, columns) in found.items():
        by_columns[columns if rows.digest and set(columns) <= set(table.columns) else ()].append(epoch)
    there = {}
    for columns, epochs in by_columns.items():
        where = f"{quoted(column)} = ANY ('{{{','.join(map(str, epochs))}}}'::bigint[])"
        names = [quoted(name) for name in columns]
        for epoch, (count, value) in digests.of_rows(db, table.sql, names, where, by=quoted(column)).items():
            there[epoch] = RowDigest(count, digest_text(value) if columns else None)
    return there
