"""Is a table what the journal says? Reads only.

The ledger alone is asked: rows that were upserted may be overwritten, deleted or expired by now.
"""

from __future__ import annotations

from epochal.sinks.cassandra.layout import STREAMS
from epochal.sinks.cassandra.standing import Standing
from epochal.txn.audit import Difference, Found, Scope
from epochal.txn.model import NO_EPOCH

UNCOUNTED = {
    "upsert": "an upsert that another one has overwritten, deleted or let expire cannot be counted: only that the "
    "ledger has the last epoch was looked at",
    "accumulate": "totals do not tell which rows they were added up from: only that the ledger has the last epoch was "
    "looked at",
}


def audited(scope: Scope, own: Standing | None, *, keyspace: str, mode: str) -> Found:
    """What the ledger says of a lineage, `own`, against what the journal expects."""
    last = own.epoch if own else NO_EPOCH
    differences, unproven = [], [UNCOUNTED[mode]]
    if last < scope.expected.last:
        what = f"is done, and the last epoch in {keyspace}.{STREAMS} is {last if last >= 0 else 'none'}"
        differences.append(Difference(what, scope.expected.last))
    elif last > scope.expected.through:
        unproven.append(f"epoch {last} is in the ledger and not done in the journal: it is under way")
    return Found(differences=tuple(differences), unproven=tuple(unproven))
