"""The first phase: Spark sorts the epoch's rows by key, workers encode them, Spark writes the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from epochal.sinks.cassandra.layout import DELETE, EXPIRY, KEY, ROW
from epochal.sinks.cassandra.stage import rows as judging
from epochal.sinks.cassandra.stage.rows import ERROR, Shape
from epochal.sinks.spark.reasons import marked
from epochal.sinks.spark.values import quoted
from epochal.txn.files import Files, is_local, join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ORDER = "_order_"
ROWS_PER_FILE = 100_000  # what is written is noted file by file: a commit that broke off goes on with the next
FLOATING = ("float", "double")


def beside(frame: DataFrame, order_by: Sequence[str], delete_when: str | None, expires_at: str | None) -> DataFrame:
    """The frame with what the workers need beside its columns."""
    from pyspark.sql import functions as f

    extra: dict[str, Column] = {f"{ORDER}{n}": frame[quoted(name)] for n, name in enumerate(order_by)}
    if delete_when is not None:
        extra[DELETE] = f.coalesce(f.expr(delete_when), f.lit(False))
    if expires_at is not None:
        extra[EXPIRY] = f.unix_micros(frame[quoted(expires_at)])
    return frame.withColumns(extra) if extra else frame


def totalled(frame: DataFrame, key: Sequence[str], totals: Mapping[str, str]) -> DataFrame:
    """One row a key with what the epoch adds to its totals."""
    from pyspark.sql import functions as f

    found: list[Column] = []
    strict = str(frame.sparkSession.conf.get("spark.sql.ansi.enabled")) == "true"
    kinds = dict(frame.dtypes)
    for name, how in totals.items():
        if how == "count":
            found.append(f.count(f.lit(1)).alias(name))
            continue
        column = frame[quoted(name)]
        if how == "sum" and not strict:
            total = _checked_sum(column, kinds[name])
        else:
            total = {"sum": f.sum, "min": f.min, "max": f.max}[how](column)
        found.append(total.alias(name))
    return frame.groupBy(*(quoted(name) for name in key)).agg(*found)


def extremes(columns: Sequence[str]) -> list[Column]:
    """The least and the largest value of each column, to be observed."""
    from pyspark.sql import functions as f

    found = [(f.min(f.col(quoted(name))), f.max(f.col(quoted(name)))) for name in columns]
    return [each.alias(f"_{n}") for n, each in enumerate(sum(found, ()))]


def _checked_sum(column: Column, kind: str) -> Column:
    """A sum that is an error where it is too large. Without ANSI's rules Spark's own wraps around, or becomes null."""
    from pyspark.sql import functions as f

    too_large = f.raise_error(marked("an epoch's sum is too large for its type"))
    if kind.startswith("decimal"):
        total = f.sum(column)
        return f.when(total.isNotNull() | (f.count(column) == 0), total).otherwise(too_large)
    if kind in FLOATING:
        return f.sum(column)
    total = f.sum(column.cast("decimal(38,0)"))
    whole = total.cast("long")
    return f.when(total.isNull() | (whole.cast("decimal(38,0)") == total), whole).otherwise(too_large)


def by_key(frame: DataFrame, shape: Shape, tasks: int) -> DataFrame:
    """All rows of a partition in one task, in the order of the primary key and `order_by`."""
    kinds = dict(frame.dtypes)
    order: list[Column] = []
    for name in shape.key:
        order.append(frame[quoted(name)])
        if kinds[name] in FLOATING:
            order.append(frame[quoted(name)].cast("string"))  # 0.0 and -0.0 are equal to Spark, not to Cassandra
    order += [frame[name].asc_nulls_first() for name in shape.order]
    parts = [frame[quoted(name)] for name in shape.partition_key]
    return frame.repartition(tasks, *parts).sortWithinPartitions(*order)


def encoded(sorted_frame: DataFrame, shape: Shape) -> DataFrame:
    """The rows as bytes; a row that the table cannot hold ends the job."""
    columns = [f"{quoted(name)} binary" for name in shape.kinds] if shape.accumulates else [f"{ROW} binary"]
    columns += [f"{KEY} binary"]
    columns += [f"{DELETE} boolean"] if shape.deletes else []
    columns += [f"{EXPIRY} bigint"] if shape.expires else []
    return sorted_frame.mapInArrow(partial(judging.staged, shape=shape), ", ".join(columns))


def with_errors(sorted_frame: DataFrame, shape: Shape) -> DataFrame:
    """The rows with what is wrong with each, in the column `_error`."""
    from pyspark.sql import types as t

    schema = t.StructType([*sorted_frame.schema.fields, t.StructField(ERROR, t.StringType())])
    return sorted_frame.mapInArrow(partial(judging.with_errors, shape=shape), schema)


def write(frame: DataFrame, folder: str) -> None:
    """Let Spark write the staged files."""
    # What is staged is read once, soon, and by Spark or Arrow: no dictionaries, which cost time to build.
    writer = frame.write.mode("overwrite").option("maxRecordsPerFile", ROWS_PER_FILE)
    writer.option("compression", "snappy").option("parquet.enable.dictionary", "false").parquet(folder)


def listed(files: Files, folder: str) -> dict[str, int]:
    """The staged files, and how long each is."""
    return {e.name: e.length for e in files.walk(folder) if not e.name.startswith(("_", "."))}


def measured(spark: SparkSession, folder: str, files: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
    """(name, bytes, rows) of each staged file that has rows."""
    if is_local(folder):
        from pyarrow.parquet import read_metadata

        counts = {name: read_metadata(join(folder, name)).num_rows for name in files}
    else:
        counted = spark.read.parquet(folder).selectExpr("_metadata.file_name AS n").groupBy("n").count()
        counts = {row["n"]: row["count"] for row in counted.collect()} if files else {}
    return tuple((name, size, counts[name]) for name, size in files.items() if counts.get(name))
