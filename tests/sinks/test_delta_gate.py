"""The gate to delta-rs fails closed: only what is known to be harmless opens it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epochal.sinks.delta.table.gate import TableState, closed, creatable

PLAIN = TableState(
    version=3,
    reader=1,
    writer=2,
    reader_features=frozenset(),
    writer_features=frozenset(),
    schema={"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
    partition_by=(),
    properties={},
)


GENERATED: dict[str, Any] = {"delta.generationExpression": "1"}


def column(kind: Any, *, null: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "id", "type": kind, "nullable": null, "metadata": metadata}]}


def test_a_plain_table_passes_in_append_and_complete_mode() -> None:
    assert closed(PLAIN, "append") is None
    assert closed(PLAIN, "complete") is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reader": 2, "writer": 5}, "protocol is 2/5"),
        ({"writer": 6}, "protocol is 1/6"),
        ({"reader": 4, "writer": 8}, "protocol is 4/8"),
        ({"writer": 7, "writer_features": frozenset({"rowTracking"})}, "feature rowTracking"),
        ({"writer": 7, "writer_features": frozenset({"tomorrow"})}, "feature tomorrow"),
        ({"reader": 3, "writer": 7, "reader_features": frozenset({"deletionVectors"})}, "feature deletionVectors"),
        ({"properties": {"delta.constraints.small": "id < 9"}}, "delta.constraints.small"),
        ({"properties": {"delta.tomorrow": "true"}}, "property delta.tomorrow"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "delta.columnMapping.mode"),
        ({"properties": {"delta.setTransactionRetentionDuration": "interval 1 day"}}, "TransactionRetention"),
        ({"schema": column("long", null=False)}, "id is NOT NULL"),
        ({"schema": column("long", **GENERATED)}, "delta.generationExpression"),
        ({"schema": column("string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)")}, "__CHAR_VARCHAR_TYPE_STRING"),
        ({"schema": column("variant")}, "type variant"),
        ({"schema": column("double"), "partition_by": ("id",)}, "partitioned by id, a double"),
    ],
)
def test_what_delta_rs_could_get_wrong_closes_it(changes: dict[str, Any], reason: str) -> None:
    found = closed(replace(PLAIN, **changes), "append")

    assert found is not None
    assert reason in found


@pytest.mark.parametrize(
    "changes",
    [
        {"properties": {"delta.checkpointInterval": "10", "owner": "me"}},
        {"properties": {"delta.enableChangeDataFeed": "true"}, "writer": 4},
        {"properties": {"delta.feature.timestampNtz": "supported"}},
        {"reader": 3, "writer": 7, "reader_features": frozenset({"timestampNtz"}), "schema": column("timestamp_ntz")},
        {"schema": column("decimal(38,18)", comment="money")},
    ],
)
def test_what_is_known_to_be_harmless_leaves_it_open(changes: dict[str, Any]) -> None:
    assert closed(replace(PLAIN, **changes), "append") is None


def test_a_change_data_feed_closes_it_for_a_replacement() -> None:
    fed = replace(PLAIN, properties={"delta.enableChangeDataFeed": "true"}, writer=4)

    assert closed(fed, "complete") == "it has a change data feed"


def test_tables_with_special_properties_or_types_are_made_by_delta_itself() -> None:
    assert creatable(PLAIN.schema, {"delta.appendOnly": "true", "owner": "me"})
    assert not creatable(PLAIN.schema, {"delta.enableDeletionVectors": "true"})
    assert not creatable(column("variant"), {})
