"""What Spark does to a frame on its way into the staging area: check it, split it, write it.

Checks run inside the one job that writes the files: a row that breaks a rule ends it with an
error of ours, before anything of the epoch can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.delta.table.jvm import DELETED
from epochal.sinks.spark.reasons import marked
from epochal.sinks.spark.sessions import set_for
from epochal.sinks.spark.values import decode, encoded, in_utc, quoted
from epochal.txn.errors import BadRows, Refused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PREFIX = "_epochal_partition_"
RECEIVED = "_epochal_received"  # how many rows of the epoch have the key of the one that was taken
CONSTRAINT = "delta.constraints."
CARRIED = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")
PLAINLY = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's default, INT96, has no statistics
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.partitionOverwriteMode": "static",
}
CHARACTERS = "__CHAR_VARCHAR_TYPE_STRING"  # how Spark notes char(n) and varchar(n) beside the type string
_CHARACTERS = re.compile(r"(?:var)?char\((\d+)\)")


def refusing(frame: DataFrame, bad: Column, reason: str) -> DataFrame:
    """The same frame; a row for which `bad` holds fails the job."""
    from pyspark.sql import functions as f

    fault = f.raise_error(f.lit(marked(reason))).cast("boolean")
    return frame.where(f.when(bad, fault).otherwise(f.lit(True)))


def checked(frame: DataFrame, state: TableState) -> DataFrame:
    """The frame with the table's constraints checked on every row that will be written.

    So that the commit, which comes after the decision, cannot fail for a row.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    stays = ~f.col(DELETED) if DELETED in frame.columns else f.lit(True)
    for field in state.schema["fields"]:
        name, metadata = field["name"], field.get("metadata", {})
        if not _is_simple(field["type"]) or "delta.invariants" in metadata:
            raise Refused(
                f"column {name}: the table's constraints inside it cannot be checked while an epoch is "
                "staged, and could stop its commit. Nothing was written. Drop the constraint, or write to another table"
            )
        if name not in frame.columns:
            continue
        if not field["nullable"]:
            bad = stays & frame[quoted(name)].isNull()
            frame = refusing(frame, bad, f"column {name} is NOT NULL in the table")
        if sized := _CHARACTERS.fullmatch(metadata.get(CHARACTERS, "")):
            bad = stays & (f.char_length(frame[quoted(name)]) > int(sized[1]))
            frame = refusing(frame, bad, f"a row's {name} is longer than {sized[0]}")
    for key, text in state.properties.items():
        if key.startswith(CONSTRAINT):
            name = key.removeprefix(CONSTRAINT)
            broken = stays & ~f.coalesce(f.expr(text), f.lit(False))
            try:
                frame = refusing(frame, broken, f"a row breaks the table's constraint {name}")
            except AnalysisException as fault:
                raise Refused(
                    f"the table's constraint {name} uses columns that the frame does not have, so it cannot be "
                    "checked while an epoch is staged. Nothing was written. Drop it, or write to another table"
                ) from fault
    return frame


def _is_simple(kind: Any) -> bool:
    """Whether nothing inside the type is NOT NULL."""
    if isinstance(kind, str):
        return True
    if kind["type"] == "struct":
        return all(
            field["nullable"] and CHARACTERS not in field.get("metadata", {}) and _is_simple(field["type"])
            for field in kind["fields"]
        )
    if kind["type"] == "array":
        return bool(kind["containsNull"]) and _is_simple(kind["elementType"])
    if kind["type"] == "map":
        return bool(kind["valueContainsNull"]) and _is_simple(kind["valueType"]) and _is_simple(kind["keyType"])
    return True


def last_row_per_key(
    frame: DataFrame, keys: Sequence[str], order_by: Sequence[str], delete_when: str | None
) -> DataFrame:
    """The last row of each key by `order_by`; ties, and several rows without an order, are refused.

    With an order, the column `RECEIVED` says of how many rows it is the last.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    for key in keys:
        frame = refusing(frame, frame[quoted(key)].isNull(), f"the key column {key} is null in a row")
    if delete_when:
        frame = frame.withColumn(DELETED, f.coalesce(f.expr(delete_when), f.lit(False)))
    by_key = Window.partitionBy(*(quoted(key) for key in keys))
    names = ", ".join(keys)
    if not order_by:
        several = frame.withColumn("_epochal_rows", f.count(f.lit(1)).over(by_key))
        reason = f"several rows of one epoch have the same {names}; set order_by to say which wins"
        return refusing(several, several["_epochal_rows"] > 1, reason).drop("_epochal_rows")
    order = [f.col(quoted(name)) for name in order_by]
    last_first = by_key.orderBy(*(column.desc_nulls_last() for column in order))
    place = f.struct(*(column.alias(f"c{n}") for n, column in enumerate(order)))
    ranked = frame.withColumn("_epochal_row", f.row_number().over(last_first)).withColumn(
        "_epochal_tie", f.lead(place).over(last_first).eqNullSafe(place)
    )
    first = ranked.withColumn(RECEIVED, f.count(f.lit(1)).over(by_key)).where("_epochal_row = 1")
    reason = (
        f"two rows of one epoch have the same {names} and the same {', '.join(order_by)}; add a column to order_by "
        "that differs"
    )
    return refusing(first, first["_epochal_tie"], reason).drop("_epochal_row", "_epochal_tie")


def partition_columns(frame: DataFrame, partition_by: Sequence[str]) -> dict[str, Column]:
    """The columns by which Spark's writer splits the files: encoded texts of the partition columns."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    found = {}
    for number, name in enumerate(partition_by):
        column = frame[quoted(name)]
        text = column.cast("string")
        if isinstance(frame.schema[name].dataType, t.TimestampType):
            text = f.concat(f.translate(in_utc(column).cast("string"), " ", "T"), f.lit("Z"))
        found[f"{PREFIX}{number}"] = encoded(text)
    return found


def partition_values(staged: str, partition_by: Sequence[str], kinds: Mapping[str, Any]) -> dict[str, str | None]:
    """A staged file's partition values as Delta's log has them, from the folders it is in."""
    *folders, _ = staged.split("/")
    values: dict[str, str | None] = {}
    for name, folder in zip(partition_by, folders, strict=True):
        value = decode(folder.partition("=")[2])
        if value.digest:
            raise BadRows(
                f"a row's {name!r} is longer than 150 bytes, too long for a partition. Nothing of the epoch was "
                "written. Partition by another column"
            )
        text = value.text or None  # Delta's protocol: an empty text is null
        if text is not None and str(kinds[name]).startswith("decimal"):
            text = format(Decimal(text), "f")
        values[name] = text
    return values


def settings_of(spark: SparkSession) -> dict[str, str]:
    """The settings with which a later session reads the rows and the table's expressions as this one does."""
    return {key: str(value) for key in CARRIED if (value := spark.conf.get(key, None)) is not None}


@contextmanager
def written_plainly(spark: SparkSession) -> Iterator[None]:
    """Files in the form that Delta's readers and our statistics need. Settings of the query's own session only."""
    with set_for(spark, PLAINLY):
        yield
