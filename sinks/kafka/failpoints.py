"""The durable steps of a Kafka sink, each with a failpoint before and after it."""

from __future__ import annotations

from epochal.participant import failpoints

STEPS = {
    "write": "Spark's writer stages the epoch's files",
    "send": "the epoch's messages are in an open transaction",
    "mark": "so is the epoch's mark",
    "transaction": "the transaction is committed",
    "lanes": "epochal's own topic records how many lanes a stream uses, before it first uses so many",
    "part-transaction": "a part of an epoch is committed with its mark, in an executor",
    "cleanup": "the staging area of a committed epoch is removed",
}

failpoints.register("kafka", STEPS)
