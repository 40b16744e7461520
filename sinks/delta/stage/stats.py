"""From the footers of staged Parquet files to the statistics of Delta's add actions.

Readers skip files by them, so a wrong bound hides rows while a missing one only costs time. What
is not certain is left out:

=====================  ==========================================================================
column                 in the statistics
=====================  ==========================================================================
whole numbers, dates   as they are
decimals               as they are, with every digit
floating point         left out if a NaN or an infinity is among them (Spark: NaN is the largest)
texts                  the first 32 characters; an upper bound that was cut ends in U+10FFFF
timestamps             to the millisecond, the lower bound rounded down, the upper one up
structs                field by field
arrays, maps, others   left out, their nulls too
=====================  ==========================================================================
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

LEAVES = 32  # how many columns Delta keeps statistics of, unless the table says otherwise
PREFIX = 32
LARGEST = "\U0010ffff"
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # the zone is added as text
WHOLE = {"byte", "short", "integer", "long"}
Bounds = Callable[[Any, bool], "str | int | float | Decimal | None"]


def statistics(footer: FileMetaData, schema: Mapping[str, Any], *, skip: Collection[str], leaves: int = LEAVES) -> str:
    """The ``stats`` of an add action. `schema` is Spark's, as JSON; `skip` are the partition columns."""
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    columns = {path: i for i, path in enumerate(paths) if paths.count(path) == 1}  # `a.b` may also be b in a
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for number, (path, kind) in enumerate(_leaves(schema, skip)):
        if 0 <= leaves <= number:
            break
        column = columns.get(".".join(path))
        if column is None or any("." in name for name in path):
            continue
        least, most, missing = _measure(footer, column, kind)
        for tree, value in ((low, least), (high, most), (nulls, missing)):
            if value is not None:
                _put(tree, path, value)
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return _json(found)


def _leaves(struct: Mapping[str, Any], skip: Collection[str] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for field in struct["fields"]:
        name, kind = field["name"], field["type"]
        if name in skip:
            continue
        if isinstance(kind, str):
            yield (name,), kind
        elif kind["type"] == "struct":
            for path, leaf in _leaves(kind):
                yield (name, *path), leaf


def _measure(footer: FileMetaData, column: int, kind: str) -> tuple[Any, Any, int | None]:
    """Bounds and nulls of one column over all row groups."""
    bound = _bound_of(kind)
    lows, highs, nulls = [], [], 0
    bounded = bound is not None
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(column)
        found = chunk.statistics if chunk.is_stats_set else None
        if found is None or not found.has_null_count:
            return None, None, None
        nulls += found.null_count
        if found.null_count == chunk.num_values:
            continue
        if bound is None or not found.has_min_max or chunk.physical_type == "INT96":
            bounded = False
            continue
        raw = kind.startswith(("timestamp", "date"))
        try:
            lows.append(found.min_raw if raw else found.min)
            highs.append(found.max_raw if raw else found.max)
        except UnicodeDecodeError:  # bytes that were cast to a text
            bounded = False
    if not bounded or bound is None or not lows or _odd(lows) or _odd(highs):
        return None, None, nulls
    return bound(min(lows), False), bound(max(highs), True), nulls


def _odd(values: list[Any]) -> bool:
    return any(isinstance(v, float) and not math.isfinite(v) for v in values)


def _bound_of(kind: str) -> Bounds | None:
    """How a bound of this type is spelled; None if it has none. The flag says that it is the upper one."""
    if kind in WHOLE or kind in ("float", "double") or kind.startswith("decimal"):
        return lambda value, _: value if isinstance(value, int | float | Decimal) else None
    if kind == "string":
        return _text
    if kind == "date":
        return lambda days, _: _date(days)
    if kind == "timestamp":
        return lambda micros, upper: _time(micros, upper=upper, zone="Z")
    if kind == "timestamp_ntz":
        return lambda micros, upper: _time(micros, upper=upper, zone="")
    return None


def _text(value: Any, upper: bool) -> str | None:
    if not isinstance(value, str):
        return None
    if len(value) <= PREFIX:
        return value
    if not upper:
        return value[:PREFIX]
    return value[:PREFIX] + LARGEST if value[PREFIX] < LARGEST else None


def _date(days: int) -> str | None:
    try:
        return (EPOCH.date() + datetime.timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _time(micros: int, *, upper: bool, zone: str) -> str | None:
    millis = -(-micros // 1000) if upper else micros // 1000
    try:
        return (EPOCH + datetime.timedelta(milliseconds=millis)).isoformat(timespec="milliseconds") + zone
    except OverflowError:
        return None


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _json(value: Any) -> str:
    """JSON with every digit of a decimal, which the standard library would make a float or refuse."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_json(item)}" for key, item in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
