"""The durable steps of rolling files and of `epochal compact`, each with a failpoint before and after it."""

from __future__ import annotations

from epochal.txn import failpoints

STEPS = {
    "write": "Spark's writer stages the epoch's files",
    "rename": "a chunk of staged files get their names where readers look",
    "merge": "pieces of closed Parquet or ORC parts are merged, while the epoch is staged",
    "copy": "pieces of a closed part are copied into one, where they cannot be joined in place",
    "join": "pieces of a chunk of closed parts are joined in place",
    "keep": "pieces of parts that stay open are moved out of the staging area",
    "marker": "a marker of the epoch or of a bucket is made",
    "manifest": "the epoch is added to the manifest",
    "cleanup": "the staging area of a committed epoch is removed",
}
# Of `epochal compact`, which is no part of a stream: a kill there ends no driver.
STEPS_OF_COMPACTION = {
    "compact-stage": "small files are joined into one, where no reader looks",
    "compact-plan": "it is recorded which files replace which",
    "compact-rename": "one joined file gets its name where readers look",
    "compact-done": "it is recorded that readers by manifest list the joined files",
    "compact-remove": "one file that was replaced is removed",
    "compact-removed": "it is recorded that all of them are removed",
}

failpoints.register("files", STEPS)
failpoints.register("compaction", STEPS_OF_COMPACTION)
