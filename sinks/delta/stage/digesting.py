"""Digests of a table's rows: as its readers will see them, not as the frame had them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.delta.stage.frames import CHARACTERS
from epochal.sinks.delta.table.schema import bare, is_filled
from epochal.sinks.spark import digests
from epochal.sinks.spark.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_PADDED = re.compile(r"char\((\d+)\)")


def measure(frame: StructType, table: Mapping[str, Any], partition_by: Sequence[str]) -> digests.Measure:
    """What to sum up for rows of a table."""
    return digests.of_values(given_columns(frame, table), _as_read(table, partition_by))


def row_hash(frame: StructType, table: Mapping[str, Any], partition_by: Sequence[str]) -> Column:
    """The hash of one row of a table."""
    from pyspark.sql import functions as f

    return digests.hash_of(given_columns(frame, table), _as_read(table, partition_by), f.col)


def given_columns(frame: StructType, table: Mapping[str, Any]) -> StructType:
    """The columns that a stream gives: what Delta fills in itself is not known while an epoch is staged."""
    from pyspark.sql.types import StructType as SparkStruct

    filled = {field["name"] for field in table["fields"] if is_filled(field)}
    return SparkStruct([field for field in frame.fields if field.name not in filled])


def _as_read(table: Mapping[str, Any], partition_by: Sequence[str]) -> dict[str, Column]:
    """What Delta makes of texts: an empty one in a partition is null, one of char(n) is padded."""
    from pyspark.sql import functions as f

    found = {}
    for field in table["fields"]:
        name = field["name"]
        if padded := _PADDED.fullmatch(field.get("metadata", {}).get(CHARACTERS, "")):
            found[name] = f.rpad(f.col(quoted(name)), int(padded[1]), " ")
        if name in partition_by and field["type"] == "string":
            found[name] = f.nullif(found.get(name, f.col(quoted(name))), f.lit(""))
    return found


def is_kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether rows have the same digest under a later schema of the table: columns may be added, and no more."""
    fields = {field["name"].lower(): field for field in after["fields"]}
    return all(
        (other := fields.get(field["name"].lower())) is not None
        and bare(other["type"]) == bare(field["type"])
        and is_filled(other) == is_filled(field)
        for field in before["fields"]
    )
