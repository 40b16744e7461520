"""Compares a table's ledger with the journal. Reads only.

Rows are not read: those that were upserted may be overwritten, deleted or expired by now.
"""

from __future__ import annotations

from epochal.sinks.cassandra.layout import STREAMS
from epochal.sinks.cassandra.ledger_state import StreamState
from epochal.txn.audit import Difference, Scope, StoreReport
from epochal.txn.model import NO_EPOCH

UNCOUNTED = {
    "upsert": "rows that an upsert has written may have been overwritten, deleted or expired since, so they cannot be "
    "counted: the audit checked only that the ledger has the last epoch",
    "accumulate": "totals do not show which rows they were added up from: the audit checked only that the ledger has "
    "the last epoch",
}


def audited(scope: Scope, own: StreamState | None, *, keyspace: str, mode: str) -> StoreReport:
    """Compare what the ledger records of a stream, `own`, with what the journal expects."""
    last = own.epoch if own else NO_EPOCH
    differences, unproven = [], [UNCOUNTED[mode]]
    if last < scope.expected.last:
        what = f"is done in the journal, but the last epoch in {keyspace}.{STREAMS} is {last if last >= 0 else 'none'}"
        differences.append(Difference(what, scope.expected.last))
    elif last > scope.expected.through:
        unproven.append(f"epoch {last} is in the ledger and not yet done in the journal: it is in progress")
    return StoreReport(differences=tuple(differences), unproven=tuple(unproven))
