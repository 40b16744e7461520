"""A frame that does not fit a table is refused column by column."""

from __future__ import annotations

from typing import Any

from epochal.sinks.delta.table.schema import constraints, creation_faults, fit, nullable
from epochal.sinks.spark.types import spell


def field(name: str, kind: Any, *, null: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": null, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


GENERATED: dict[str, Any] = {"delta.generationExpression": "id * 2"}
TABLE = struct(field("id", "long"), field("word", "string"), field("day", "date"))


def test_columns_in_another_order_and_stricter_about_nulls_fit() -> None:
    frame = struct(field("day", "date"), field("word", "string", comment="x"), field("id", "long", null=False))

    assert fit(TABLE, frame, add_columns=False).faults == ()


def test_every_fault_is_told_at_once() -> None:
    frame = struct(field("id", "integer"), field("Word", "string"), field("dya", "date"))
    faults = fit(TABLE, frame, add_columns=False).faults

    assert faults == (
        "id: int in the frame, bigint in the table",
        "word: the table has it (string), the frame does not (but 'Word': names must be spelled alike)",
        "day: the table has it (date), the frame does not",
        "Word: not in the table (but 'word': names must be spelled alike)",
        "dya: not in the table; did you mean 'day'?",
    )


def test_a_difference_inside_a_column_is_told_by_the_name_of_the_place() -> None:
    inner = struct(field("zip", "string"), field("street", "string"))
    other = struct(field("zip", "long"), field("streets", "string"))
    array = {"type": "array", "containsNull": True}
    table = struct(field("address", inner), field("items", {**array, "elementType": "long"}))
    frame = struct(field("address", other), field("items", {**array, "elementType": "string"}))

    assert fit(table, frame, add_columns=False).faults == (
        "address.street: the table has it, the frame does not",
        "address.streets: not in the table; did you mean 'street'?",
        "address.zip: bigint in the frame, string in the table",
        "items.element: string in the frame, bigint in the table",
    )


def test_the_columns_of_a_frame_are_named_where_one_is_missing() -> None:
    assert creation_faults(TABLE, ["dya"]) == [
        "partition_by: 'dya' is not in the frame, which has id, word, day; did you mean 'day'?"
    ]
    assert creation_faults(struct(field("id", "long")), ["id"]) == [
        "partition_by: at least one of the columns id must not be in it"
    ]


def test_new_columns_are_named_if_they_may_be_added() -> None:
    found = fit(TABLE, struct(*TABLE["fields"], field("more", "long")), add_columns=True)

    assert (found.faults, found.new) == ((), ("more",))


def test_a_column_that_differs_in_case_only_is_never_added() -> None:
    assert fit(TABLE, struct(*TABLE["fields"], field("ID", "long")), add_columns=True).faults != ()


def test_a_column_without_a_type_is_refused() -> None:
    found = fit(TABLE, struct(*TABLE["fields"], field("nothing", "void")), add_columns=True)

    assert found.faults == ("nothing: it has no type (all its values are null); cast it",)


def test_columns_that_delta_fills_in_must_be_left_out() -> None:
    table = struct(field("id", "long"), field("twice", "long", **GENERATED))

    assert fit(table, struct(field("id", "long")), add_columns=False).faults == ()
    assert fit(table, struct(field("id", "long"), field("twice", "long")), add_columns=False).faults == (
        "twice: Delta generates its values; leave it out of the frame",
    )


def test_types_inside_of_others_count() -> None:
    deep = {"type": "array", "elementType": struct(field("a", "long", null=False)), "containsNull": False}
    same = {"type": "array", "elementType": struct(field("a", "long")), "containsNull": True}
    other = {"type": "array", "elementType": struct(field("a", "integer")), "containsNull": True}

    assert fit(struct(field("x", deep)), struct(field("x", same)), add_columns=False).faults == ()
    assert fit(struct(field("x", deep)), struct(field("x", other)), add_columns=False).faults == (
        "x.element.a: int in the frame, bigint in the table",
    )


def test_a_new_table_promises_nothing_about_nulls() -> None:
    pairs = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
    made = nullable(struct(field("id", "long", null=False, comment="x"), field("pairs", pairs)))

    assert constraints(made) == []
    assert made["fields"][0]["metadata"] == {}
    assert spell(made) == "struct<id: bigint, pairs: map<string, bigint>>"


def test_every_promise_of_a_table_is_found() -> None:
    inner = {"type": "array", "elementType": struct(field("a", "long", null=False)), "containsNull": False}
    pairs = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
    table = struct(
        field("id", "long", null=False), field("x", inner), field("m", pairs), field("w", "long", CURRENT_DEFAULT="1")
    )

    assert constraints(table) == [
        "id is NOT NULL",
        "x.element is NOT NULL",
        "x.element.a is NOT NULL",
        "m.value is NOT NULL",
        "w has CURRENT_DEFAULT",
    ]
