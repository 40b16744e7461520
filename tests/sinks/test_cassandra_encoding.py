"""Every value is encoded as Cassandra's own driver would; what a column cannot hold is an error."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cassandra import cqltypes
from hypothesis import given
from hypothesis import strategies as st

from epochal.sinks.cassandra.cluster.cql import Cql, parse
from epochal.sinks.cassandra.stage.encoding import encode, routing_key

VERSION = 5
UTC = datetime.UTC


def no_udt(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    raise ValueError(name)


def kind(text: str) -> Cql:
    return parse(text, no_udt)


def by_driver(text: str, value: Any) -> bytes:
    encoded: bytes = cqltypes.lookup_casstype(_class_of(kind(text))).serialize(value, VERSION)
    return encoded


def _class_of(cql: Cql) -> str:
    names = {
        "int": "Int32Type",
        "bigint": "LongType",
        "text": "UTF8Type",
        "blob": "BytesType",
        "float": "FloatType",
        "double": "DoubleType",
        "boolean": "BooleanType",
        "smallint": "ShortType",
        "tinyint": "ByteType",
        "varint": "IntegerType",
        "decimal": "DecimalType",
        "uuid": "UUIDType",
        "timeuuid": "TimeUUIDType",
        "inet": "InetAddressType",
        "date": "SimpleDateType",
        "time": "TimeType",
        "timestamp": "DateType",
        "ascii": "AsciiType",
        "list": "ListType",
        "set": "SetType",
        "map": "MapType",
        "tuple": "TupleType",
    }
    inner = f"({','.join(_class_of(part) for part in cql.parts)})" if cql.parts else ""
    return f"org.apache.cassandra.db.marshal.{names[cql.name]}{inner}"


def encoded(values: list[Any], text: str, arrow: pa.DataType) -> list[bytes | None]:
    found = encode(pa.array(values, arrow), kind(text))
    assert not any(mask.any() for mask, _ in found.faults)
    listed: list[bytes | None] = found.values.to_pylist()
    return listed


def faults(values: list[Any], text: str, arrow: pa.DataType) -> list[tuple[list[int], str]]:
    found = encode(pa.array(values, arrow), kind(text))
    return [(np.flatnonzero(mask).tolist(), reason) for mask, reason in found.faults if mask.any()]


CASES: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("tinyint", pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    ("smallint", pa.int32(), st.integers(-(1 << 15), (1 << 15) - 1)),
    ("int", pa.int64(), st.integers(-(1 << 31), (1 << 31) - 1)),
    ("bigint", pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    ("varint", pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1)),
    ("double", pa.float64(), st.floats(allow_nan=False)),
    ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("boolean", pa.bool_(), st.booleans()),
    ("text", pa.string(), st.text(st.characters(codec="utf-8"))),
    ("ascii", pa.string(), st.text(st.characters(codec="ascii"))),
    ("blob", pa.binary(), st.binary()),
    ("list<int>", pa.list_(pa.int32()), st.lists(st.integers(-(1 << 31), (1 << 31) - 1))),
    ("frozen<map<text, bigint>>", pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text("ab"), st.integers(0, 9))),
]


@pytest.mark.parametrize(("text", "arrow", "values"), CASES, ids=[case[0] for case in CASES])
def test_values_are_encoded_as_the_driver_does_it(
    text: str, arrow: pa.DataType, values: st.SearchStrategy[Any]
) -> None:
    @given(st.lists(st.none() | values))
    def same(some: list[Any]) -> None:
        plain = [None if v is None else Decimal(v) if text == "varint" else v for v in some]
        arrows = [list(v.items()) if isinstance(v, dict) else v for v in plain]

        assert encoded(arrows, text, arrow) == [None if v is None else by_driver(text, v) for v in some]

    same()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20))
def test_decimals_keep_every_digit_and_their_scale(value: Decimal) -> None:
    assert encoded([value], "decimal", pa.decimal128(38, 3)) == [by_driver("decimal", value)]


@given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)))  # noqa: DTZ001  # made UTC below
def test_timestamps_are_milliseconds_before_and_after_1970(moment: datetime.datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)

    assert encoded([whole], "timestamp", pa.timestamp("us", "UTC")) == [by_driver("timestamp", whole)]


def test_uuids_addresses_dates_and_times_come_from_texts_and_numbers() -> None:
    one, time_based = uuid.UUID(int=7), uuid.uuid1()

    assert encoded([str(one)], "uuid", pa.string()) == [one.bytes]
    assert encoded([str(time_based)], "timeuuid", pa.string()) == [time_based.bytes]
    assert encoded(["10.0.0.1", "::1"], "inet", pa.string()) == [bytes([10, 0, 0, 1]), bytes(15) + b"\1"]
    day = datetime.date(1960, 2, 29)
    assert encoded([day, None], "date", pa.date32()) == [by_driver("date", day), None]
    assert encoded([86_399_999_999_999], "time", pa.int64()) == [by_driver("time", 86_399_999_999_999)]


def test_a_user_defined_type_takes_fields_by_name_and_lacks_what_the_row_lacks() -> None:
    place = parse("place", lambda _: (("street", "zip"), ("text", "int")))
    rows = pa.array([{"zip": 7, "street": "a"}, {"zip": None, "street": "b"}])

    found = encode(rows, place)

    assert found.values.to_pylist() == [
        b"\0\0\0\1a\0\0\0\4\0\0\0\7",
        b"\0\0\0\1b\xff\xff\xff\xff",
    ]


def test_a_vector_is_its_elements_and_nothing_else() -> None:
    assert encoded([[1.0, 2.0]], "vector<float, 2>", pa.list_(pa.float32())) == [b"\x3f\x80\0\0\x40\0\0\0"]


@pytest.mark.parametrize(
    ("values", "text", "arrow", "reason"),
    [
        ([1, 1 << 31], "int", pa.int64(), "is out of range for int"),
        ([1, 200], "tinyint", pa.int32(), "is out of range for tinyint"),
        (["a", "é"], "ascii", pa.string(), "is not ASCII"),
        (["00000000-0000-0000-0000-000000000007", "x"], "uuid", pa.string(), "is not a UUID"),
        ([str(uuid.uuid1()), str(uuid.UUID(int=7))], "timeuuid", pa.string(), "of version 1"),
        (["::1", "10.0.0.256"], "inet", pa.string(), "is not an IP address"),
        ([0, -1], "time", pa.int64(), "is not a time of day"),
        ([Decimal("1.0"), Decimal("1.5")], "varint", pa.decimal128(9, 1), "is not a whole number"),
        ([[1], [1, None]], "frozen<list<int>>", pa.list_(pa.int32()), "has a null inside"),
        ([[1], [2, 2]], "set<int>", pa.list_(pa.int32()), "has an element twice"),
        ([["a"], ["b" * 70_000]], "set<text>", pa.list_(pa.string()), "more than 65535 bytes"),
        ([[1.0], [1.0, 2.0]], "vector<float, 1>", pa.list_(pa.float32()), "has 2 elements, and its vector 1"),
        ([[1], [1 << 40]], "frozen<list<int>>", pa.list_(pa.int64()), "is out of range for int"),
    ],
)
def test_what_a_column_cannot_hold_is_a_fault_of_its_row(
    values: list[Any], text: str, arrow: pa.DataType, reason: str
) -> None:
    ((rows, answer),) = faults(values, text, arrow)

    assert rows == [1]
    assert reason in answer


def test_microseconds_are_refused_or_cut() -> None:
    moments = pa.array([1_500, 1_501], pa.timestamp("us", "UTC"))
    exact = encode(moments, kind("timestamp"))
    cut = encode(moments, kind("timestamp"), truncate=True)

    assert [mask.tolist() for mask, _ in exact.faults] == [[True, True]]
    assert cut.values.to_pylist() == [by_driver("timestamp", 1)] * 2
    assert cut.faults == []


def test_bytes_that_are_no_utf8_are_refused() -> None:
    raw = pa.array([b"ok", b"\xff"], pa.binary())
    found = encode(pa.Array.from_buffers(pa.string(), 2, raw.buffers()), kind("text"))

    assert [(mask.tolist(), reason) for mask, reason in found.faults] == [([False, True], "is not valid UTF-8")]


def test_a_routing_key_of_several_parts_is_the_rings() -> None:
    first, second = pa.array([b"ab"], pa.binary()), pa.array([b"c"], pa.binary())
    assert routing_key([first, second]).to_pylist() == [b"\0\2ab\0\0\1c\0"]
    assert routing_key([first]).to_pylist() == [b"ab"]


def test_types_are_read_as_deep_as_they_go() -> None:
    found = kind("map<text, frozen<map<int, frozen<tuple<uuid, vector<float, 3>>>>>>")

    assert not found.frozen
    assert found.parts[1].frozen
    assert found.parts[1].parts[1].parts[1].size == 3
