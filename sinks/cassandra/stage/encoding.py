"""From columns of Arrow to the bytes that Cassandra's protocol carries.

Done while an epoch is staged: what cannot be encoded is known before anything is decided, and the
commit has only bytes to send. Plain types are encoded a column at a time; a value that its type
cannot hold is a fault of its row.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from epochal.sinks.cassandra.cluster.cql import Cql

WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DAY = 86_400_000_000_000  # nanoseconds
LONGEST_ELEMENT = 65_535  # bytes of a set's element or a map's key where each is a cell of its own
Mask = npt.NDArray[np.bool_]


class BadValue(ValueError):
    """A value that its column cannot hold."""


@dataclass(slots=True)
class Encoded:
    """A column as bytes, and the rows that have none for a reason."""

    values: pa.Array
    faults: list[tuple[Mask, str]] = field(default_factory=list)


def encode(column: pa.Array, kind: Cql, *, truncate: bool = False) -> Encoded:
    """A column's values as the protocol has them. `truncate` cuts timestamps to the millisecond."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if kind.name in WHOLE:
        return _whole(column, WHOLE[kind.name], kind)
    if kind.name in _FAST:
        return _FAST[kind.name](column)
    if kind.name == "timestamp":
        return _timestamps(column, truncate=truncate)
    return _one_by_one(column, kind, truncate=truncate)


def encode_value(value: Any, kind: Cql, *, truncate: bool = False) -> bytes:
    """One value, as Arrow hands it to Python."""
    if kind.name in WHOLE:
        bits = WHOLE[kind.name]
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise BadValue(f"is out of range for {kind.name}")
        return int(value).to_bytes(bits // 8, "big", signed=True)
    if kind.name == "timestamp":
        micros = int(value)
        if micros % 1000 and not truncate:
            raise BadValue(FINER)
        return struct.pack(">q", micros // 1000)
    if kind.name in _ONE:
        return _ONE[kind.name](value)
    return _NESTED[kind.name](value, kind, truncate)


FINER = (
    "has microseconds, and Cassandra keeps milliseconds; cut it with date_trunc('millisecond', ...), set "
    "timestamps='truncate', or store unix_micros(...) in a bigint"
)


def routing_key(parts: list[pa.Array]) -> pa.Array:
    """Partition keys as the ring hashes them."""
    if len(parts) == 1:
        return parts[0]
    joined = [piece for part in parts for piece in (_lengths(part, ">u2"), part, b"\0")]
    return pc.binary_join_element_wise(*joined, b"")


def packed(columns: list[pa.Array], *, unset: bool = False) -> pa.Array:
    """The columns of each row as one value: each with its length before it, -1 for null or -2 for "leave it"."""
    joined = [piece for column in columns for piece in (_lengths(column, ">i4", unset), column.fill_null(b""))]
    return pc.binary_join_element_wise(*joined, b"")


def _lengths(column: pa.Array, kind: str, unset: bool = False) -> pa.Array:
    lengths = pc.binary_length(column).fill_null(-2 if unset else -1).to_numpy(zero_copy_only=False)
    return _fixed(column.fill_null(b""), lengths.astype(kind))


def _present(column: pa.Array) -> Mask:
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=bool)


def _fixed(column: pa.Array, raw: npt.NDArray[Any]) -> pa.Array:
    """Values of one width as Arrow's bytes, with the nulls of the column they come from."""
    width = raw.dtype.itemsize
    offsets = np.arange(0, (len(raw) + 1) * width, width, dtype=np.int32)
    found = pa.Array.from_buffers(
        pa.binary(), len(raw), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(raw.tobytes())]
    )
    return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.binary())) if column.null_count else found


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    zero = pa.scalar(0, column.type)
    filled = column.fill_null(zero) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _whole(column: pa.Array, bits: int, kind: Cql) -> Encoded:
    numbers = _numbers(column)
    found = _fixed(column, numbers.astype(f">i{bits // 8}"))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if column.type.bit_width <= bits:
        return Encoded(found)
    return Encoded(found, [((numbers < low) | (numbers > high), f"is out of range for {kind.name}")])


def _floats(dtype: str) -> Callable[[pa.Array], Encoded]:
    return lambda column: Encoded(
        _fixed(column, np.asarray(column.to_numpy(zero_copy_only=False), dtype=float).astype(dtype))
    )


def _texts(column: pa.Array) -> Encoded:
    raw = column.cast(pa.binary())
    try:
        column.validate(full=True)  # Spark's strings may hold any bytes, Cassandra refuses what is not UTF-8
    except pa.ArrowInvalid:
        bad = np.array([not _is_utf8(value) for value in raw.to_pylist()], dtype=bool)
        return Encoded(raw, [(bad, "is not valid UTF-8")])
    return Encoded(raw)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _ascii(column: pa.Array) -> Encoded:
    found = _texts(column)
    if not found.faults:
        plain = pc.string_is_ascii(column.cast(pa.string())).fill_null(True)
        found.faults.append((~np.asarray(plain.to_numpy(zero_copy_only=False), dtype=bool), "is not ASCII"))
    return found


def _booleans(column: pa.Array) -> Encoded:
    numbers = np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False))
    return Encoded(_fixed(column, numbers.astype(np.uint8)))


def _dates(column: pa.Array) -> Encoded:
    days = _numbers(column.cast(pa.int32())).astype(np.int64)
    return Encoded(_fixed(column, (days + (1 << 31)).astype(">u4")))


def _times(column: pa.Array) -> Encoded:
    """Nanoseconds since midnight, from a number or from Spark's TIME."""
    plain = column if pa.types.is_integer(column.type) else column.cast(pa.int64())
    numbers = _numbers(plain)
    if pa.types.is_time64(column.type) and column.type.unit == "us":
        numbers = numbers * 1000
    return Encoded(_fixed(column, numbers.astype(">i8")), [((numbers < 0) | (numbers >= DAY), "is not a time of day")])


def _timestamps(column: pa.Array, *, truncate: bool) -> Encoded:
    micros = _numbers(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))
    found = _fixed(column, (micros // 1000).astype(">i8"))
    return Encoded(found) if truncate else Encoded(found, [(micros % 1000 != 0, FINER)])


def _one_by_one(column: pa.Array, kind: Cql, *, truncate: bool) -> Encoded:
    values: list[bytes | None] = []
    faults: dict[str, list[int]] = {}
    plain = _without_time_objects(column)
    for row, value in enumerate(plain.to_pylist()):
        try:
            values.append(None if value is None else encode_value(value, kind, truncate=truncate))
        except BadValue as fault:
            values.append(None)
            faults.setdefault(str(fault), []).append(row)
    found = []
    for reason, rows in faults.items():
        mask = np.zeros(len(values), dtype=bool)
        mask[rows] = True
        found.append((mask, reason))
    return Encoded(pa.array(values, pa.binary()), found)


def _without_time_objects(column: pa.Array) -> pa.Array:
    """Times as numbers, also inside: Python's own objects have neither every year nor every digit."""
    return column.cast(_numeric(column.type))


def _numeric(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _numeric(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_numeric(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_numeric(kind.key_type), _numeric(kind.item_type))
    if pa.types.is_string(kind):
        return pa.binary()  # decoded where it is checked
    return kind


def _varint(value: int) -> bytes:
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal(value: Decimal | int) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)  # Spark's decimals have neither NaN nor infinity
    unscaled = int("".join(map(str, digits)) or "0")
    return struct.pack(">i", -exponent) + _varint(-unscaled if sign else unscaled)


def _utf8(value: bytes | str) -> str:
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        raise BadValue("is not valid UTF-8") from None


def _text(value: bytes) -> bytes:
    return _utf8(value).encode()


def _ascii_text(value: bytes) -> bytes:
    if not value.isascii():
        raise BadValue("is not ASCII")
    return value


def _uuid(value: bytes) -> bytes:
    try:
        return uuid.UUID(_utf8(value)).bytes
    except ValueError:
        raise BadValue("is not a UUID") from None


def _timeuuid(value: bytes) -> bytes:
    found = _uuid(value)
    if uuid.UUID(bytes=found).version != 1:
        raise BadValue("is not a UUID of version 1, which a timeuuid is")
    return found


def _inet(value: bytes) -> bytes:
    try:
        return ipaddress.ip_address(_utf8(value)).packed
    except ValueError:
        raise BadValue("is not an IP address") from None


def _exact_varint(value: Decimal | int) -> bytes:
    if value != int(value):
        raise BadValue("is not a whole number")
    return _varint(int(value))


def _time(value: Any) -> bytes:
    if not isinstance(value, int) or not 0 <= value < DAY:
        raise BadValue("is not a time of day")
    return struct.pack(">q", value)


def _collection(value: list[Any], kind: Cql, truncate: bool) -> bytes:
    elements = [_element(item, kind.parts[0], truncate) for item in value]
    if kind.name == "set":
        if len(set(elements)) != len(elements):
            raise BadValue("has an element twice, and is a set")
        elements.sort()
        _check_lengths(elements, kind)
    return struct.pack(">i", len(elements)) + b"".join(struct.pack(">i", len(e)) + e for e in elements)


def _mapping(value: list[tuple[Any, Any]], kind: Cql, truncate: bool) -> bytes:
    key, item = kind.parts
    pairs = [(_element(k, key, truncate), _element(v, item, truncate)) for k, v in value]
    _check_lengths([k for k, _ in pairs], kind)
    return struct.pack(">i", len(pairs)) + b"".join(
        struct.pack(">i", len(k)) + k + struct.pack(">i", len(v)) + v for k, v in pairs
    )


def _element(value: Any, kind: Cql, truncate: bool) -> bytes:
    if value is None:
        raise BadValue("has a null inside, which Cassandra's collections cannot hold")
    return encode_value(value, kind, truncate=truncate)


def _check_lengths(elements: list[bytes], kind: Cql) -> None:
    if not kind.frozen and any(len(element) > LONGEST_ELEMENT for element in elements):
        raise BadValue(f"has an element or key of more than {LONGEST_ELEMENT} bytes")


def _row(value: Mapping[str, Any], kind: Cql, truncate: bool) -> bytes:
    """A tuple by position, a user-defined type by its fields' names."""
    found = [value.get(name) for name in kind.fields] if kind.name == "udt" else [*value.values()]
    out = b""
    for item, part in zip(found, kind.parts, strict=True):
        raw = None if item is None else encode_value(item, part, truncate=truncate)
        out += struct.pack(">i", -1) if raw is None else struct.pack(">i", len(raw)) + raw
    return out


def _vector(value: list[Any], kind: Cql, truncate: bool) -> bytes:
    if len(value) != kind.size:
        raise BadValue(f"has {len(value)} elements, and its vector {kind.size}")
    return b"".join(_element(item, kind.parts[0], truncate) for item in value)


_FAST: dict[str, Callable[[pa.Array], Encoded]] = {
    "ascii": _ascii,
    "blob": lambda column: Encoded(column.cast(pa.binary())),
    "boolean": _booleans,
    "date": _dates,
    "double": _floats(">f8"),
    "float": _floats(">f4"),
    "text": _texts,
    "time": _times,
}
_ONE: dict[str, Callable[[Any], bytes]] = {
    "ascii": _ascii_text,
    "blob": bytes,
    "boolean": lambda value: b"\1" if value else b"\0",
    "date": lambda days: struct.pack(">I", days + (1 << 31)),
    "decimal": _decimal,
    "double": lambda value: struct.pack(">d", value),
    "float": lambda value: struct.pack(">f", value),
    "inet": _inet,
    "text": _text,
    "time": _time,
    "timeuuid": _timeuuid,
    "uuid": _uuid,
    "varint": _exact_varint,
}
_NESTED: dict[str, Callable[[Any, Cql, bool], bytes]] = {
    "list": _collection,
    "map": _mapping,
    "set": _collection,
    "tuple": _row,
    "udt": _row,
    "vector": _vector,
}
