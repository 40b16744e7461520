"""Every failpoint that epochal has, of the protocol and of all its sinks."""

from __future__ import annotations

import epochal.sinks.cassandra
import epochal.sinks.delta
import epochal.sinks.files
from epochal.txn import failpoints

assert {epochal.sinks.cassandra, epochal.sinks.delta, epochal.sinks.files}  # each has registered its own

SINKS = ("files", "delta", "cassandra")
OF_PROTOCOL = failpoints.steps(failpoints.PROTOCOL)
OF_SINKS = failpoints.steps(*SINKS)
OF_CASSANDRA = {step: text for step, text in OF_SINKS.items() if step not in failpoints.steps("files", "delta")}
NAMES = failpoints.names(failpoints.PROTOCOL, *SINKS)
NAMES_OF_COMPACTION = failpoints.names("compaction")
