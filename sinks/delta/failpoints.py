"""The durable steps of a Delta sink, each with a failpoint before and after it."""

from __future__ import annotations

from epochal.txn import failpoints

STEPS = {
    "write": "Spark's writer stages the epoch's files",
    "rename": "one staged file gets its name in the table's folder",
    "table": "a missing table is made",
    "log": "the epoch's entry is added to the table's log",
    "cleanup": "the staging area of a committed epoch is removed",
}

failpoints.register("delta", STEPS)
