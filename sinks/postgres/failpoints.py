"""The durable steps of a PostgreSQL sink, each with a failpoint before and after it."""

from __future__ import annotations

from epochal.participant import failpoints

STEPS = {
    "attempt": "the attempt is recorded, before any row of it is staged",
    "copied": "a task's rows are copied into the staged table, in an executor",
    "filed": "the rows of a small epoch are stored in one piece",
    "shown": "one transaction makes the rows visible and records the epoch",
}

failpoints.register("postgres", STEPS)
