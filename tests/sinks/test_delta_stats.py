"""Statistics never hide a row: a bound that is not certain is left out or widened."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.sinks.delta.stage.stats import statistics

UTC = datetime.UTC


def schema(**columns: Any) -> dict[str, Any]:
    fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def stats(tmp_path: Path, table: pa.Table, kinds: dict[str, Any], **options: Any) -> dict[str, Any]:
    path = tmp_path / "file.parquet"
    pq.write_table(table, path, row_group_size=options.pop("row_group_size", None))
    text = statistics(pq.read_metadata(path), kinds, skip=options.pop("skip", ()), **options)
    return dict(json.loads(text, parse_float=Decimal))


def test_whole_numbers_dates_and_nulls_are_told_as_they_are(tmp_path: Path) -> None:
    table = pa.table({"n": [3, None, -7], "day": [datetime.date(2026, 1, 2), None, datetime.date(1999, 12, 31)]})

    assert stats(tmp_path, table, schema(n="long", day="date")) == {
        "numRecords": 3,
        "minValues": {"n": -7, "day": "1999-12-31"},
        "maxValues": {"n": 3, "day": "2026-01-02"},
        "nullCount": {"n": 1, "day": 1},
    }


def test_bounds_hold_over_all_row_groups(tmp_path: Path) -> None:
    found = stats(tmp_path, pa.table({"n": [5, 1, None, None, 9, 2]}), schema(n="long"), row_group_size=2)

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"n": 1}, {"n": 9}, {"n": 2})


def test_a_column_of_nulls_has_no_bounds(tmp_path: Path) -> None:
    found = stats(tmp_path, pa.table({"n": pa.array([None, None], pa.int64())}), schema(n="long"))

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"n": 2})


@pytest.mark.parametrize("odd", [math.inf, -math.inf])
def test_floating_point_with_an_infinity_has_no_bounds(tmp_path: Path, odd: float) -> None:
    found = stats(tmp_path, pa.table({"x": [1.0, odd]}), schema(x="double"))

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"x": 0})


def test_decimals_keep_every_digit(tmp_path: Path) -> None:
    exact = Decimal("12345678901234567890.123456789012345678")
    table = pa.table({"d": pa.array([exact, -exact], pa.decimal128(38, 18))})
    found = stats(tmp_path, table, schema(d="decimal(38,18)"))

    assert (found["minValues"]["d"], found["maxValues"]["d"]) == (-exact, exact)


def test_timestamps_are_rounded_outwards_to_the_millisecond(tmp_path: Path) -> None:
    times = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime.datetime(2026, 1, 1, 0, 0, 0, 1, UTC)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us", "UTC")), "n": pa.array(times, pa.timestamp("us"))})
    found = stats(tmp_path, table, schema(t="timestamp", n="timestamp_ntz"))

    assert found["minValues"] == {"t": "1969-12-31T23:59:59.999Z", "n": "1969-12-31T23:59:59.999"}
    assert found["maxValues"] == {"t": "2026-01-01T00:00:00.001Z", "n": "2026-01-01T00:00:00.001"}


def test_times_that_a_date_cannot_spell_have_no_bound(tmp_path: Path) -> None:
    far = pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))
    days = pa.array([2**30], pa.int32()).cast(pa.date32())
    found = stats(tmp_path, pa.table({"n": far, "d": days}), schema(n="timestamp_ntz", d="date"))

    assert (found["minValues"], found["maxValues"]) == ({}, {})


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=80), min_size=1, max_size=20))
def test_no_text_lies_outside_of_the_bounds_as_spark_compares_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    found = stats(tmp_path_factory.mktemp("t"), pa.table({"s": texts}), schema(s="string"))
    low, high = found["minValues"].get("s", ""), found["maxValues"].get("s")

    assert all(low.encode() <= text.encode() for text in texts)
    assert high is None or all(text.encode() <= high.encode() for text in texts)
    assert len(low) <= 32
    assert len(high or "") <= 33


def test_structs_are_told_field_by_field_and_arrays_not_at_all(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}, None]
    kinds = schema(
        s={**schema(a="long", b={**schema(c="string")})},
        tags={"type": "array", "elementType": "long", "containsNull": True},
    )
    found = stats(tmp_path, pa.table({"s": rows, "tags": [[1], [], None]}), kinds)

    assert found["minValues"] == {"s": {"a": 1, "b": {"c": "x"}}}
    assert found["nullCount"] == {"s": {"a": 2, "b": {"c": 2}}}


def test_a_dot_in_a_name_is_not_taken_for_a_struct(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1, 2], "a": [{"b": 7}, {"b": 8}]})
    kinds = schema(**{"a.b": "long", "a": schema(b="long")})

    assert stats(tmp_path, table, kinds)["minValues"] == {}


def test_a_long_text_with_the_largest_character_behind_the_cut_has_no_upper_bound(tmp_path: Path) -> None:
    found = stats(tmp_path, pa.table({"s": ["x" * 32 + "\U0010ffff" * 2]}), schema(s="string"))

    assert (found["minValues"], found["maxValues"]) == ({"s": "x" * 32}, {})


def test_bytes_that_are_no_text_have_no_bounds(tmp_path: Path) -> None:
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    found = stats(tmp_path, pa.table({"s": broken}), schema(s="string"))

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"s": 0})


def test_partition_columns_and_those_behind_the_limit_are_left_out(tmp_path: Path) -> None:
    table = pa.table({"p": [1], "a": [1], "b": [1]})
    kinds = schema(p="long", a="long", b="long")

    assert stats(tmp_path, table, kinds, skip=("p",), leaves=1)["minValues"] == {"a": 1}
    assert stats(tmp_path, table, kinds, leaves=-1)["minValues"] == {"p": 1, "a": 1, "b": 1}
