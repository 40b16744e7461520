"""Values of rows on their way through the names of folders.

Spark's writer splits files by the values of columns and spells them into paths. To keep what came
from data out of paths, each value becomes a short text of letters, digits, ``-`` and ``_``
(`encoded`), from which `decode` gets it back.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

EXACT = 150  # values of more bytes are known by their beginning and their hash


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it came out of Spark: whole, or its beginning and hash."""

    text: str | None
    digest: str = ""


def decode(text: str) -> Value:
    """What `encoded` made of a value.

    >>> decode("vMjAyNi0xMS0xNg")
    Value(text='2026-11-16', digest='')
    """
    kind, rest = text[:1], text[1:]
    if kind == "n":
        return Value(None)
    if kind == "v":
        return Value(_unbase64(rest))
    return Value(_unbase64(rest[64:]), rest[:64])


def encoded(value: Column) -> Column:
    """A text of at most 230 characters, safe in any path, from which `decode` gets the value."""
    from pyspark.sql import functions as f

    def base64url(text: Column) -> Column:
        return f.translate(f.base64(f.encode(text, "UTF-8")), "+/=\r\n", "-_")

    short = f.concat(f.lit("v"), base64url(value))
    long = f.concat(f.lit("h"), f.sha2(f.encode(value, "UTF-8"), 256), base64url(f.substring(value, 1, 24)))
    return f.when(value.isNull(), f.lit("n")).when(f.octet_length(value) <= EXACT, short).otherwise(long)


def quoted(column: str) -> str:
    """A column's name as Spark reads it when it has dots or blanks in it."""
    return "`" + column.replace("`", "``") + "`"


def in_utc(column: Column) -> Column:
    """A timestamp's date and time in UTC, whatever the session's own time zone is."""
    from pyspark.sql import functions as f

    start = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    # As decimals: a double has not enough digits for microseconds after the year 2242.
    seconds = (f.unix_micros(column).cast("decimal(20,0)") / f.lit(1_000_000)).cast("decimal(20,6)")
    return start + f.make_dt_interval(secs=seconds)


def _unbase64(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "replace")
