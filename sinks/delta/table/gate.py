"""Which tables may be committed to by delta-rs, and which only by Delta's own code in the JVM.

delta-rs is thirty times faster, and silent about what it does not know: it passes by CHECK
constraints and writes all-null rows under column mapping. So this fails closed: a protocol
feature, a table property or a column that is not known to be harmless closes the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epochal.sinks.delta.table.schema import is_plain, leaf_types, promises

# Harmless as long as nothing below uses them; the older protocol versions have them all.
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
READER_FEATURES = {"timestampNtz"}
PROPERTIES = {
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.dataSkippingNumIndexedCols",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableExpiredLogCleanup",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.parquet.compression.codec",
    "delta.targetFileSize",
}
# What a table is made with by delta-rs; other properties need Delta's own code to set up what they ask for.
CREATABLE = PROPERTIES - {"delta.minReaderVersion", "delta.minWriterVersion", "delta.enableChangeDataFeed"}


@dataclass(frozen=True, slots=True)
class TableState:
    """What the latest version of a table says about itself."""

    version: int
    reader: int
    writer: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]
    schema: Mapping[str, Any]
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]

    def flag(self, name: str) -> bool:
        return self.properties.get(name, "false").lower() == "true"


def closed(state: TableState, mode: str) -> str | None:
    """Why delta-rs must not commit to the table, or None."""
    if state.reader > 3 or state.writer > 7 or state.reader == 2 or state.writer in (5, 6):
        return f"its protocol is {state.reader}/{state.writer}"
    unknown = sorted((state.writer_features - FEATURES) | (state.reader_features - READER_FEATURES))
    if unknown:
        return f"it has the feature {unknown[0]}"
    for key, value in sorted(state.properties.items()):
        feature = key.removeprefix("delta.feature.")
        if key.startswith("delta.") and key not in PROPERTIES and feature not in FEATURES:
            return f"it has the property {key}={value}"
    found = promises(state.schema)
    if found:
        return found[0]
    odd = [kind for kind in leaf_types(state.schema) if not is_plain(kind)]
    if odd:
        return f"it has a column of type {odd[0]}"
    kinds = {field["name"]: field["type"] for field in state.schema["fields"]}
    for column in state.partition_by:
        if not isinstance(kinds[column], str) or kinds[column] in ("float", "double", "binary"):
            return f"it is partitioned by {column}, a {kinds[column]}"
    if mode != "append" and state.flag("delta.appendOnly"):
        return "it is append-only"
    if mode != "append" and state.flag("delta.enableChangeDataFeed"):
        return "it has a change data feed"
    return None


def creatable(schema: Mapping[str, Any], properties: Mapping[str, str]) -> bool:
    """Whether delta-rs may make a table like this."""
    known = all(not key.startswith("delta.") or key in CREATABLE for key in properties)
    return known and all(is_plain(kind) for kind in leaf_types(schema))
