"""The durable steps of a Cassandra sink, each with a failpoint before and after it."""

from __future__ import annotations

from epochal.txn import failpoints

STEPS = {
    "write": "Spark's writer stages the epoch's files",
    "rows": "the epoch's rows are written",
    "part": "one staged file is written and noted, in an executor",
    "ledger": "the ledger records the epoch as committed",
    "cleanup": "the staging area of a committed epoch is removed",
}

failpoints.register("cassandra", STEPS)
