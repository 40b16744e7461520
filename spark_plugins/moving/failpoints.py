"""The durable steps of savepoints, each with a failpoint before and after it. A kill there ends no driver."""

from __future__ import annotations

from epochal.txn import failpoints

STEPS_OF_SAVEPOINTS = {
    "savepoint-begin": "a savepoint says that it is being taken",
    "savepoint-object": "the content of one file is stored",
    "savepoint-manifest": "the manifest is created, which makes it a savepoint",
    "savepoint-end": "a savepoint no longer says that it is being taken",
    "savepoint-sweep": "what no savepoint has is removed",
}
STEPS_OF_RESTORES = {
    "restore-begin": "on an object store: a mark says that a restore writes the new checkpoint",
    "restore-file": "one file of the new checkpoint is written, where no query looks",
    "restore-close": "the old journal records that the stream has moved",
    "restore-target": "a sink's target is claimed for the new journal",
    "restore-journal": "the new journal has its own start",
    "restore-rename": "the new checkpoint gets its name; on an object store, a mark says that it is whole",
}

STEPS_OF_RESCALES = {
    "rescale-begin": "the journal records that a rescale is begun, and what the state was",
    "rescale-state": "Spark changes the number of partitions, which takes an epoch",
    "rescale-record": "the journal records that epoch, given to no sink",
    "rescale-withdraw": "the journal records that Spark refused, and has changed nothing",
}

failpoints.register("savepoint", STEPS_OF_SAVEPOINTS)
failpoints.register("restore", STEPS_OF_RESTORES)
failpoints.register("rescale", STEPS_OF_RESCALES)


def hit(name: str) -> None:
    """As `epochal.txn.failpoints.hit`, which is another function once failpoints are set."""
    failpoints.hit(name)
