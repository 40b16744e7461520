"""The digest of each format: of values in typed formats, of lines in text formats.

A line is made by the same function as the writer's (`to_json`, `to_csv`), with the writer's options. Where that might
not give exactly the line in the file, a digest is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.sinks.spark import digests
from epochal.sinks.spark.digests import Measure
from epochal.sinks.spark.values import quoted
from epochal.txn.errors import BadRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPED = ("parquet", "orc")
LINES = ("json", "csv", "text")
COUNTED = ("avro",)  # its schema may differ from the frame's, so rows are only counted
ENDINGS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "json": "json",
    "csv": "csv",
    "txt": "text",
    "xml": "xml",
}


def faults(format_: object, options: Mapping[str, str]) -> list[str]:
    """What keeps digest=True from being certain."""
    if format_ in TYPED:
        return []
    if format_ in COUNTED:
        return [f"digest=True: not for format={format_!r}, whose schema may hold other values than the frame"]
    if format_ not in LINES:
        return [f"digest=True: not for format={format_!r}, whose lines only its writer knows"]
    found = []
    for key, value in options.items():
        if key.lower() == "linesep" and value != "\n":
            found.append(f"digest=True: not with options[{key!r}]; a digest needs lines that end with a line feed")
        if key.lower() in ("encoding", "charset") and value.upper().replace("-", "") != "UTF8":
            found.append(f"digest=True: not with options[{key!r}]; lines are read as UTF-8")
    return found


def measure(frame: DataFrame, format_: str, options: Mapping[str, str]) -> Measure:
    """The measure of a frame in a format, with the writer's options."""
    from pyspark.sql import functions as f

    if format_ in TYPED:
        return digests.of_values(frame.schema)
    columns = [f.col(quoted(name)) for name in frame.columns]
    if format_ == "text":
        return digests.of_lines(f.coalesce(columns[0].cast("string"), f.lit("")))
    if format_ == "json":
        is_pretty = any(key.lower() == "pretty" and value.lower() == "true" for key, value in options.items())
        return digests.of_lines(f.to_json(f.struct(*columns), dict(options) or None), single=not is_pretty)
    line = f.to_csv(f.struct(*columns), dict(options) or None)
    if len(columns) == 1:
        _check_single(frame.columns[0], options)
        line = f.when(columns[0].isNotNull(), line)
    return digests.of_lines(line)


def _check_single(column: str, options: Mapping[str, str]) -> None:
    """With one column, Spark's CSV writer omits rows that would be empty lines: nulls, and others by its options."""
    given = [key for key in options if key.lower() in ("nullvalue", "emptyvalue", "quoteall")]
    if given:
        raise BadRows(
            f"digest=True: the frame has the one column {column!r}, and with options[{given[0]!r}] it is not certain "
            "which of its rows Spark's CSV writer leaves out. Nothing of the epoch was written. Leave out the option "
            "or the digest, or write a second column"
        )


def format_of(name: str) -> str | None:
    """The format of a published file, by its name's ending.

    >>> format_of("day=1/part-000000000042-00007-1f0c9a2e.json.gz")
    'json'
    """
    endings = name.rpartition("/")[2].split(".")[1:]
    return next((ENDINGS[ending] for ending in reversed(endings) if ending in ENDINGS), None)
