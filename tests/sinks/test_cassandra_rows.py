"""Rows on their way into the staging area: one of a key, whatever the batches they come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.sinks.cassandra.cluster.cql import Cql
from epochal.sinks.cassandra.commit.entries import values
from epochal.sinks.cassandra.layout import DELETE, KEY, ROW
from epochal.sinks.cassandra.stage.rows import ERROR, RowFormat, staged, with_errors

KINDS = {"p": Cql("text"), "c": Cql("int"), "v": Cql("int")}


def row_format(**changes: Any) -> RowFormat:
    plain: dict[str, Any] = {
        "kinds": KINDS,
        "partition_key": ("p",),
        "clustering_key": ("c",),
        "order": (),
        "truncate": False,
        "max_row_bytes": 100,
        "deletes": False,
        "expires": False,
        "latest": 20 * 365 * 86_400,
    }
    return RowFormat(**{**plain, **changes})


def batches(rows: Sequence[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    schema = pa.schema(
        [("p", pa.string()), ("c", pa.int64()), ("v", pa.int64()), ("_order_0", pa.int64()), (DELETE, pa.bool_())]
    )
    cut: list[pa.RecordBatch] = pa.Table.from_pylist(list(rows), schema).to_batches(max_chunksize=size)
    return cut


def row(p: str | None, c: int | None, v: int | None = 0, order: int | None = None, **extra: Any) -> dict[str, Any]:
    return {"p": p, "c": c, "v": v, "_order_0": order, **extra}


@settings(deadline=None)
@given(
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(1, 4), max_size=6),
    st.integers(1, 5),
)
def test_the_last_of_each_key_is_kept_however_the_rows_are_cut_into_batches(keys: Any, size: int) -> None:
    rows = [row(p, c, order, order) for (p, c), times in sorted(keys.items()) for order in range(times)]

    kept = [
        values(r[ROW])
        for b in staged(iter(batches(rows, size)), row_format(order=("_order_0",)))
        for r in b.to_pylist()
    ]

    assert [(p, int.from_bytes(c or b""), int.from_bytes(v or b"")) for p, c, v in kept] == [
        (p.encode(), c, times - 1) for (p, c), times in sorted(keys.items())
    ]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("rows", "order", "bad"),
    [
        ([row("a", 1), row("a", 1), row("b", 1)], (), [0, 1]),
        ([row("a", 1), row("b", 1), row("b", 1)], (), [1, 2]),
        ([row("a", 1, order=1), row("a", 1, order=2), row("a", 1, order=2)], ("_order_0",), [1, 2]),
        ([row("a", 1, order=None), row("a", 1, order=None), row("a", 2)], ("_order_0",), [0, 1]),
        ([row("a", 1, order=None), row("a", 1, order=1), row("a", 2)], ("_order_0",), []),
    ],
)
def test_rows_that_nothing_tells_apart_are_all_told(
    rows: list[dict[str, Any]], order: tuple[str, ...], bad: list[int], size: int
) -> None:
    judged = [r for b in with_errors(iter(batches(rows, size)), row_format(order=order)) for r in b.to_pylist()]

    assert [n for n, r in enumerate(judged) if r[ERROR] is not None] == bad
    assert len(judged) == len(rows)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(None, 1), "the key column p is null in a row"),
        (row("a", None), "the key column c is null in a row"),
        (row("", 1), "a row's p is empty, which Cassandra has no partition for"),
        (row("a" * 70_000, 1), "a row's p is longer than 65535 bytes, and part of the key"),
        (row("a" * 99, 1), "a row has more than 100 bytes (max_row_bytes, or"),
        (row("a", 1, 1 << 40), "a row's v is out of range for int"),
    ],
)
def test_a_row_that_cassandra_would_refuse_ends_the_job_with_the_reason(bad: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match="epochal<<") as raised:
        list(staged(iter(batches([bad, row("b", 9)], 10)), row_format()))
    assert reason in str(raised.value)
    assert "aaa" not in str(raised.value)  # no value of a row


def test_a_row_that_deletes_needs_only_its_key() -> None:
    rows = [row("a", 1, 1 << 40, **{DELETE: True}), row("a", 2, 5, **{DELETE: False})]

    found = [r for b in staged(iter(batches(rows, 10)), row_format(deletes=True)) for r in b.to_pylist()]

    assert [r[DELETE] for r in found] == [True, False]


def test_what_is_staged_is_the_row_as_a_batch_carries_it_and_the_rings_key() -> None:
    (kept,) = staged(iter(batches([row("ab", 1, None)], 10)), row_format(partition_key=("p", "c"), clustering_key=()))

    assert kept.schema.names == [ROW, KEY]
    assert kept.column(KEY).to_pylist() == [b"\0\2ab\0\0\4\0\0\0\1\0"]
    assert kept.column(ROW).to_pylist() == [b"\0\0\0\2ab\0\0\0\4\0\0\0\1\xff\xff\xff\xff"]


def test_a_null_that_leaves_its_column_alone_is_staged_as_unset() -> None:
    (kept,) = staged(iter(batches([row("ab", 1, None)], 10)), row_format(unset=True))

    assert kept.column(ROW).to_pylist()[0].endswith(b"\xff\xff\xff\xfe")


def test_totals_are_staged_value_by_value() -> None:
    (kept,) = staged(iter(batches([row("ab", 1, 2)], 10)), row_format(accumulates=True))

    assert kept.schema.names == ["p", "c", "v", KEY]


def test_no_rows_are_no_batches() -> None:
    assert list(staged(iter(batches([], 1)), row_format())) == []
