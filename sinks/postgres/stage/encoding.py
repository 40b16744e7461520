"""Values as PostgreSQL reads them from a text, and what makes a value unfit, as expressions of Spark.

Spark's own code makes the lines of COPY, so Python only passes bytes on. No value is cast silently: it is stored as it
is, or its row is counted as unfit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql import types as t

from epochal.participant import in_utc
from epochal.sinks.postgres.table import OF_THE_SERVER, Type

if TYPE_CHECKING:
    from pyspark.sql import Column

INTEGERS = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
BITS = {"int2": 16, "int4": 32, "int8": 64}
TEXTS = ("text", "varchar", "bpchar", "uuid", "enum", "citext", *OF_THE_SERVER)
DOCUMENTS = ("json", "jsonb")
ONE_TO_ONE: dict[type[t.DataType], tuple[str, ...]] = {
    t.BooleanType: ("bool",),
    t.FloatType: ("float4", "float8"),
    t.DoubleType: ("float8",),
    t.StringType: TEXTS,
    t.BinaryType: ("bytea",),
    t.DateType: ("date",),
    t.TimestampType: ("timestamptz",),
    t.TimestampNTZType: ("timestamp",),
    t.StructType: DOCUMENTS,
    t.MapType: DOCUMENTS,
}
SORTABLE: dict[type[t.DataType], str] = {
    t.BooleanType: "boolean",
    t.FloatType: "double precision",
    t.DoubleType: "double precision",
    t.DecimalType: "numeric",
    t.StringType: 'text COLLATE "C"',
    t.BinaryType: "bytea",
    t.DateType: "date",
    t.TimestampType: "timestamp with time zone",
    t.TimestampNTZType: "timestamp without time zone",
    t.ByteType: "bigint",
    t.ShortType: "bigint",
    t.IntegerType: "bigint",
    t.LongType: "bigint",
}
SORTED_AS = {
    "boolean": "bool",
    "double precision": "float8",
    'text COLLATE "C"': "text",
    "date": "date",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "bigint": "int8",
}
UUID = r"\A[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}\z"
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}  # in a line of COPY
FIRST, END = -62_135_596_800_000_000, 253_402_300_800_000_000  # microseconds: the years 1 to 9999
DAY = 86_400_000_000  # microseconds
YEARS = ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")
IN_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


def sortable(kind: t.DataType) -> tuple[Type, str] | None:
    """The type in which PostgreSQL sorts values of a type as Spark does; None if there is none."""
    spelled = SORTABLE.get(type(kind))
    return None if spelled is None else (Type(SORTED_AS.get(spelled, spelled)), spelled)


def fits(kind: t.DataType, target: Type) -> bool:
    """Whether values of a type can be stored in a column as they are; single ones may still be too large."""
    if type(kind) in INTEGERS:
        return target.name in BITS or (target.name == "numeric" and (target.digits is None or target.digits[1] >= 0))
    if isinstance(kind, t.DecimalType):
        return target.name == "numeric" and (target.digits is None or kind.scale <= target.digits[1])
    if isinstance(kind, t.ArrayType):
        element = target.element
        nested = isinstance(kind.elementType, t.ArrayType)
        return target.name in DOCUMENTS or (element is not None and not nested and fits(kind.elementType, element))
    return target.name in ONE_TO_ONE.get(type(kind), ())


def unfit(value: Column, kind: t.DataType, target: Type) -> list[tuple[str, Column]]:
    """What is wrong with a value, and when; without the nulls."""
    if target.name == "array":
        assert isinstance(kind, t.ArrayType)
        assert target.element is not None
        element, inner = target.element, kind.elementType
        found = unfit(f.lit(None).cast(inner), inner, element)

        def any_is(number: int) -> Column:
            return f.exists(value, lambda one: f.coalesce(unfit(one, inner, element)[number][1], f.lit(False)))

        return [(f"{reason} in an array", any_is(number)) for number, (reason, _) in enumerate(found)]
    if type(kind) in INTEGERS:
        return _out_of(value, kind, target)
    match kind:
        case t.DecimalType() if target.digits is not None and kind.precision - kind.scale > _whole(target):
            limit = f.lit(Decimal(10) ** _whole(target))
            return [(_too_large(target), (value >= limit) | (value <= -limit))]
        case t.StringType():
            return _unfit_text(value, target)
        case t.DateType():
            days = f.unix_date(value)  # in microseconds some are more than a long has
            return [("not in the years 1 to 9999", (days < FIRST // DAY) | (days >= END // DAY))]
        case t.TimestampType():
            micros = f.unix_micros(value)
            return [("not in the years 1 to 9999", (micros < FIRST) | (micros >= END)), *_too_fine(micros, target)]
        case t.TimestampNTZType():
            first, last = (f.lit(text).cast("timestamp_ntz") for text in YEARS)
            micros = f.unix_micros(value.cast("timestamp"))  # in any time zone the fractions are these
            return [("not in the years 1 to 9999", (value < first) | (value > last)), *_too_fine(micros, target)]
    return []


def text_of(value: Column, kind: t.DataType, target: Type) -> Column:
    """A value as PostgreSQL reads it; null if it is null."""
    if target.name in DOCUMENTS and not isinstance(kind, t.StringType):
        return f.to_json(value, IN_JSON)
    match kind:
        case t.ArrayType():
            assert target.element is not None
            element, inner = target.element, kind.elementType

            def item(one: Column) -> Column:
                text = _replaced(text_of(one, inner, element), {"\\": "\\\\", '"': '\\"'})
                return f.coalesce(f.concat(f.lit('"'), text, f.lit('"')), f.lit("NULL"))

            return f.concat(f.lit("{"), f.array_join(f.transform(value, item), ","), f.lit("}"))
        case t.BooleanType():
            return f.when(value, "t").when(~value, "f")
        case t.BinaryType():
            return f.concat(f.lit("\\x"), f.hex(value))
        case t.FloatType() if target.name == "float8":
            return value.cast("double").cast("string")
        case t.TimestampType():
            return f.concat(in_utc(value).cast("string"), f.lit("+00"))
    return value.cast("string")


def field(text: Column, kind: t.DataType) -> Column:
    """A text as a field of a line of COPY."""
    match kind:
        case t.StringType():  # nearly none has such a character, and to look for each of them takes longer
            text = f.when(text.rlike(r"[\\\n\r\t]"), _replaced(text, ESCAPES)).otherwise(text)
        case t.BinaryType():
            text = f.concat(f.lit("\\"), text)  # which begins with a backslash and has no other
        case t.ArrayType() | t.MapType() | t.StructType():
            text = _replaced(text, ESCAPES)
    return f.coalesce(text, f.lit("\\N"))


def _replaced(text: Column, changes: dict[str, str]) -> Column:
    for old, new in changes.items():
        text = f.replace(text, f.lit(old), f.lit(new))
    return text


def _out_of(value: Column, kind: t.DataType, target: Type) -> list[tuple[str, Column]]:
    """Whole numbers out of the range of a column."""
    own = 1 << INTEGERS[type(kind)] - 1  # type: ignore[index]  # one of these types
    if target.name in BITS:
        limit = 1 << BITS[target.name] - 1
        return [(f"out of the range of {target.name}", (value >= limit) | (value < -limit))] if limit < own else []
    limit = 10 ** _whole(target)
    return [(_too_large(target), (value >= limit) | (value <= -limit))] if limit < own else []


def _unfit_text(value: Column, target: Type) -> list[tuple[str, Column]]:
    found = [
        ("a character with the code 0, which PostgreSQL has not", f.contains(value, f.lit("\0"))),
        ("bytes that are no UTF-8", ~f.is_valid_utf8(value)),
    ]
    if target.length is not None:
        found.append((f"more than {target.length} characters", f.char_length(value) > target.length))
    if target.name == "enum":
        found.append(("no value of the enum", ~value.isin(*target.labels)))
    if target.name == "uuid":
        found.append(("no UUID", ~value.rlike(UUID)))
    return found


def _too_fine(micros: Column, target: Type) -> list[tuple[str, Column]]:
    """Fractions of a second that the column would round."""
    step = 10 ** (6 - target.fraction)
    return [(f"more than {target.fraction} digits of a second", micros % step != 0)] if step > 1 else []


def _whole(target: Type) -> int:
    """The digits before the point that a numeric has at most; more than any number has if it has no limit."""
    return 400 if target.digits is None else target.digits[0] - target.digits[1]


def _too_large(target: Type) -> str:
    return f"too many digits for numeric{target.digits}"
