"""Digests of rows by Spark: taken in the job that writes them, and once more from what was written.

Both sides go through here, so that they cannot differ in how they count. A digest is the sum of a 64-bit hash of each
row (`epochal.txn.row_digests`). The high and the low half of each hash are summed on their own: no sum overflows.

*Values*: the hash of a row is that of its columns in order of name, each with its name before it; a null is passed
over with its name, so a column that was added later changes nothing for older rows. Nested values are hashed as JSON,
which distinguishes a missing value, an empty one and one in another field. Maps, which Spark does not hash, are sorted.

*Lines*: of text formats each line is hashed, as the file has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal.sinks.spark.values import quoted
from epochal.txn.row_digests import RowDigest, digest_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

ROWS, HIGH, LOW, LINES = "rows", "high", "low", "lines"
FILE = "file"
# Whatever the session's time zone is, and to the microsecond.
NESTED = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "ignoreNullFields": "true",  # a field that was added later changes nothing for older rows
}
HALF = 32
MASK = (1 << HALF) - 1


@dataclass(frozen=True, slots=True)
class Measure:
    """What is summed over rows: the halves of their hashes, and where lines are hashed their number."""

    high: Column
    low: Column
    lines: Column | None = None

    def sums(self) -> list[Column]:
        """Aggregates, also for `DataFrame.observe`."""
        from pyspark.sql import functions as f

        found = [f.count(f.lit(1)).alias(ROWS), f.sum(self.high).alias(HIGH), f.sum(self.low).alias(LOW)]
        return found if self.lines is None else [*found, f.sum(self.lines).alias(LINES)]


def row_digest(sums: Mapping[str, Any]) -> RowDigest:
    """What the aggregates of a measure have come to; without rows Spark leaves them null, or out."""
    lines = int(sums[LINES] or 0) if LINES in sums else None
    value = (int(sums.get(HIGH) or 0) << HALF) + int(sums.get(LOW) or 0)
    return RowDigest(int(sums.get(ROWS) or 0), digest_text(value, lines))


def of_values(schema: StructType, given: Mapping[str, Column] | None = None) -> Measure:
    """A measure of typed rows; `given` columns stand for those of the same name."""
    from pyspark.sql import functions as f

    return _halves(hash_of(schema, given or {}, f.col))


def hash_of(schema: StructType, given: Mapping[str, Column], column: Any) -> Column:
    """The hash of a row."""
    from pyspark.sql import functions as f

    parts = []
    for field in sorted(schema.fields, key=lambda field: field.name.lower()):
        value = given.get(field.name, column(quoted(field.name)))
        parts += [f.when(value.isNotNull(), f.lit(_number(field.name))), _hashable(value, field.dataType)]
    return f.xxhash64(*parts) if parts else f.lit(0).cast("long")


def of_lines(text: Column, *, single: bool = False) -> Measure:
    """A measure of texts that are written as they are, with a line end behind each; null is not written at all.

    Those that are known to be `single` lines cost a third less.
    """
    from pyspark.sql import functions as f

    one = _halves(line_hash(text))
    if single:
        return Measure(one.high, one.low, f.lit(1).cast("long"))
    several = f.transform(f.split(text, "\n", -1), line_hash)
    is_one, none = ~text.contains("\n"), text.isNull()

    def added(half: Any) -> Column:
        return f.aggregate(several, f.lit(0).cast("long"), lambda so_far, line: so_far + half(line))

    zero = f.lit(0).cast("long")
    return Measure(
        f.when(none, zero).when(is_one, one.high).otherwise(added(lambda line: _halves(line).high)),
        f.when(none, zero).when(is_one, one.low).otherwise(added(lambda line: _halves(line).low)),
        f.when(none, zero).when(is_one, f.lit(1).cast("long")).otherwise(f.size(several).cast("long")),
    )


def line_hash(line: Column) -> Column:
    """The hash of one line."""
    from pyspark.sql import functions as f

    return f.xxhash64(line.cast("binary"))


def by_file(frame: DataFrame, measure: Measure, *more: Column) -> dict[str, dict[str, Any]]:
    """The sums of a measure for each file that a frame was read from, by the last part of its path. One job."""
    rows = frame.groupBy(file_of(frame).alias(FILE)).agg(*measure.sums(), *more).collect()
    return {row[FILE]: row.asDict() for row in rows}


def file_of(frame: DataFrame) -> Column:
    """The last part of the path of the file that a row was read from."""
    from pyspark.sql import functions as f

    path = frame.metadataColumn("_metadata")["file_path"]  # this way it may have a column of that name too
    plus = f.replace(
        f.element_at(f.split(path, "/"), -1), f.lit("+"), f.lit("%2B")
    )  # which url_decode takes for a blank
    return f.url_decode(plus)


def together(sums: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Several sums as one."""
    found: dict[str, int] = {}
    for one in sums:
        for key in (ROWS, HIGH, LOW, LINES):
            if key in one:
                found[key] = found.get(key, 0) + int(one[key] or 0)
    return found


def _halves(value: Column) -> Measure:
    from pyspark.sql import functions as f

    return Measure(f.shiftrightunsigned(value, HALF), value.bitwiseAND(f.lit(MASK)))


def _hashable(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(kind, t.ByteType | t.ShortType | t.IntegerType):
        return value.cast("long")
    if isinstance(kind, t.FloatType):
        return value.cast("double")
    if isinstance(kind, t.StringType):
        return value.cast("binary")  # whatever its collation is: rows are compared to the letter
    if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
        return f.to_json(_in_order(value, kind), NESTED)
    return value


def _in_order(value: Column, kind: DataType) -> Column:
    """A nested value with sorted texts of entries in place of maps: ORC sorts them too, and keys may be of any type."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if not _has_map(kind):
        return value
    if isinstance(kind, t.MapType):
        key, held = kind.keyType, kind.valueType

        def text(entry: Column) -> Column:
            both = (_in_order(entry["key"], key).alias("key"), _in_order(entry["value"], held).alias("value"))
            return f.to_json(f.struct(*both), NESTED)

        return f.array_sort(f.transform(f.map_entries(value), text))
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        return f.transform(value, lambda one: _in_order(one, element))
    assert isinstance(kind, t.StructType)
    fields = [_in_order(value[field.name], field.dataType).alias(field.name) for field in kind.fields]
    return f.when(value.isNotNull(), f.struct(*fields))


def _has_map(kind: DataType) -> bool:
    from pyspark.sql import types as t

    if isinstance(kind, t.MapType):
        return True
    if isinstance(kind, t.ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, t.StructType) and any(_has_map(field.dataType) for field in kind.fields)


def _number(name: str) -> int:
    """A column's name as a number: it is hashed with each of its values."""
    return int.from_bytes(hashlib.sha256(name.lower().encode()).digest()[:8], "big", signed=True)
