"""Every failpoint that epochal has, of the protocol and of all its sinks."""

from __future__ import annotations

import epochal.sinks.cassandra
import epochal.sinks.delta
import epochal.sinks.files
import epochal.sinks.kafka
import epochal.sinks.postgres
import epochal.spark_plugins.moving.failpoints as of_savepoints
from epochal.txn import failpoints

# Each has registered its own.
assert {
    epochal.sinks.cassandra,
    epochal.sinks.delta,
    epochal.sinks.files,
    epochal.sinks.kafka,
    epochal.sinks.postgres,
}
assert {*of_savepoints.STEPS_OF_SAVEPOINTS} == {*failpoints.steps("savepoint")}

SINKS = ("files", "delta", "cassandra", "kafka")
OF_PROTOCOL = failpoints.steps(failpoints.PROTOCOL)
OF_SINKS = failpoints.steps(*SINKS)
OF_FOLDERS = failpoints.steps("files", "delta")
OF_CASSANDRA = {step: text for step, text in failpoints.steps("cassandra").items() if step not in OF_FOLDERS}
OF_KAFKA = {step: text for step, text in failpoints.steps("kafka").items() if step not in OF_FOLDERS}
NAMES = failpoints.names(failpoints.PROTOCOL, *SINKS)
NAMES_OF_POSTGRES = failpoints.names("postgres")
NAMES_OF_COMPACTION = failpoints.names("compaction")
NAMES_OF_SAVEPOINTS = failpoints.names("savepoint")
NAMES_OF_RESTORES = failpoints.names("restore")
NAMES_OF_RESCALES = failpoints.names("rescale")
