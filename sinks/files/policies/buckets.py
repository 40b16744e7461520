"""Makes folder names of bucket values. No value can lead out of the target.

In Spark each bucket value becomes a short text of letters, digits, ``-`` and ``_`` (`encoded`), by
which Spark's writer splits the staged files. Only Python turns it into a folder's name
(`folder_name`), in one place: in Hive's style, with all characters escaped that mean something in a path.

==========================================  =====================================================
value                                       folder
==========================================  =====================================================
``2026-11-16``                              ``day=2026-11-16``
``a/../b``                                  ``day=a%2F..%2Fb``
null                                        ``day=__HIVE_DEFAULT_PARTITION__``
the empty string                            ``day=__EPOCHAL_EMPTY__``
a name of over 255 bytes                    ``day=the first charac...~<sha256, 16 digits>``
==========================================  =====================================================

The folder is only an index: the rows in the files keep the bucket columns, unless
``drop_bucket_columns`` is set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from epochal.sinks.config.options import Faults
from epochal.sinks.spark.values import Value, encoded, in_utc, quoted
from epochal.txn.errors import BadRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NULL = "__HIVE_DEFAULT_PARTITION__"
EMPTY = "__EPOCHAL_EMPTY__"
LIMIT = 255  # bytes in one name on every file system of interest
SPECIAL = frozenset("\"#%'*/:=?\\{}[]^\x7f") | {chr(c) for c in range(32)}
Unit = Literal["year", "month", "day", "hour", "minute"]
LENGTHS: dict[Unit, int] = {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16}  # of a time as text
PREFIX = "_epochal_bucket_"


@dataclass(frozen=True, slots=True)
class TimeBucket:
    """A bucket by the calendar unit that a timestamp column falls into.

    >>> TimeBucket("ordered_at", "hour", timezone="Europe/Berlin").folder
    'hour'
    """

    column: str
    unit: Unit = "day"
    timezone: str = "UTC"
    name: str | None = None

    def __post_init__(self) -> None:
        faults = Faults(f"TimeBucket({self.column!r})")
        faults.check(isinstance(self.column, str) and self.column != "", "column: the name of a timestamp column")
        faults.one_of("unit", self.unit, get_args(Unit))
        faults.check(_is_timezone(self.timezone), f"timezone={self.timezone!r}: not the name of a time zone")
        faults.check(self.name is None or self.name != "", "name: must not be empty")
        faults.done()

    @property
    def folder(self) -> str:
        return self.name or self.unit


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket by the result of a function of the frame's columns. The same row must always get the same value.

    >>> Bucket("tier", lambda orders: F.when(orders.amount > 1000, "large").otherwise("small")).folder
    'tier'
    """

    name: str
    by: Callable[[DataFrame], Column]

    def __post_init__(self) -> None:
        faults = Faults(f"Bucket({self.name!r})")
        faults.check(isinstance(self.name, str) and self.name != "", "name: what the folders are called, not empty")
        faults.check(callable(self.by), f"by={self.by!r}: a function from a DataFrame to a Column of it")
        faults.done()

    @property
    def folder(self) -> str:
        return self.name


AnyBucket: TypeAlias = str | TimeBucket | Bucket


def folder_of(bucket: AnyBucket) -> str:
    """The key in a bucket's folder name."""
    return bucket if isinstance(bucket, str) else bucket.folder


def escape(text: str) -> str:
    """Hive's escaping: characters that mean something in a path become %XX.

    >>> escape("a/b=c")
    'a%2Fb%3Dc'
    """
    return "".join(f"%{ord(c):02X}" if c in SPECIAL else c for c in text)


def folder_name(key: str, value: Value) -> str:
    """The folder of a value.

    >>> folder_name("day", Value("../../etc"))
    'day=..%2F..%2Fetc'
    """
    start = f"{escape(key)}="
    if value.text is None:
        return start + NULL
    if value.text == "":
        return start + EMPTY
    spelled = start + escape(value.text)
    if not value.digest and _fits(spelled, LIMIT):
        return spelled
    digest = value.digest or hashlib.sha256(value.text.encode("utf-8", "replace")).hexdigest()
    tail = f"~{digest[:16]}"
    return _shorten(spelled, LIMIT - len(tail)) + tail


def survives(value: Value, key: str) -> bool:
    """Whether the folder's name holds the complete value, so that the column can be dropped."""
    if value.text is None:
        return True
    return value.text not in ("", NULL, EMPTY) and folder_name(key, value) == f"{escape(key)}={escape(value.text)}"


def columns(frame: DataFrame, buckets: tuple[AnyBucket, ...]) -> dict[str, Column]:
    """The encoded bucket columns for Spark's writer, by the names they get there."""
    from pyspark.sql import types as t

    found = {}
    for number, bucket in enumerate(buckets):
        if isinstance(bucket, Bucket):
            found[f"{PREFIX}{number}"] = encoded(_made(frame, bucket))
            continue
        column = bucket.column if isinstance(bucket, TimeBucket) else bucket
        if column not in frame.columns:
            raise BadRows(f"bucket column {column!r} is not in the frame, which has {', '.join(frame.columns)}")
        kind = frame.schema[column].dataType
        if isinstance(bucket, TimeBucket):
            if not isinstance(kind, t.TimestampType | t.TimestampNTZType | t.DateType):
                raise BadRows(f"bucket column {column!r} is {kind.simpleString()}: a time bucket needs a timestamp")
            value = _time_text(frame[quoted(column)], bucket, kind)
        else:
            if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.BinaryType | t.VariantType):
                raise BadRows(f"bucket column {column!r} is {kind.simpleString()}: a bucket needs a plain value")
            value = frame[quoted(column)].cast("string")
        found[f"{PREFIX}{number}"] = encoded(value)
    return found


def _made(frame: DataFrame, bucket: Bucket) -> Column:
    from pyspark.sql import Column as SparkColumn

    value = bucket.by(frame)
    if not isinstance(value, SparkColumn):
        raise BadRows(f"bucket {bucket.name!r}: its function returned {value!r}, which is not a Column")
    return value.cast("string")


def _time_text(column: Column, bucket: TimeBucket, kind: object) -> Column:
    """The calendar unit as text, whatever the session's own time zone is."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    local = column.cast("timestamp_ntz")
    if isinstance(kind, t.TimestampType):
        local = f.convert_timezone(f.lit("UTC"), f.lit(bucket.timezone), in_utc(column))
    return f.translate(f.substring(local.cast("string"), 1, LENGTHS[bucket.unit]), " :", "T-")


def _is_timezone(name: object) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return isinstance(name, str)


def _fits(text: str, limit: int) -> bool:
    return len(text.encode("utf-8", "replace")) <= limit


def _shorten(text: str, limit: int) -> str:
    while not _fits(text, limit):
        text = text[:-1]
    return re.sub("%[0-9A-F]?$", "", text)  # not in the middle of an escape
