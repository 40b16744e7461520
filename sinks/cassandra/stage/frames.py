"""The first phase as frames: Spark sorts the epoch's rows by key, and workers encode them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from epochal.sinks.cassandra.layout import DELETE, EXPIRY, KEY, ROW
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.cassandra.stage import rows as workers
from epochal.sinks.cassandra.stage.rows import ERROR, RowFormat
from epochal.sinks.spark.reasons import marked
from epochal.sinks.spark.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = "_order_"
FLOATING = ("float", "double")


def with_helper_columns(frame: DataFrame, options: CassandraOptions) -> DataFrame:
    """The frame with the columns that workers need besides its own: the order, and whether and when a row goes."""
    from pyspark.sql import functions as f

    extra: dict[str, Column] = {f"{ORDER}{n}": frame[quoted(name)] for n, name in enumerate(options.order_by)}
    if options.delete_when is not None:
        extra[DELETE] = f.coalesce(f.expr(options.delete_when), f.lit(False))
    if options.expires_at is not None:
        extra[EXPIRY] = f.unix_micros(frame[quoted(options.expires_at)])
    return frame.withColumns(extra) if extra else frame


def totalled(frame: DataFrame, key: Sequence[str], totals: Mapping[str, str]) -> DataFrame:
    """One row per key, with what the epoch adds to its totals."""
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
    """Aggregates for `DataFrame.observe`: the least and the largest value of each column."""
    from pyspark.sql import functions as f

    found = [(f.min(f.col(quoted(name))), f.max(f.col(quoted(name)))) for name in columns]
    return [each.alias(f"_{n}") for n, each in enumerate(sum(found, ()))]


def _checked_sum(column: Column, kind: str) -> Column:
    """A sum that fails where it overflows. Without ANSI mode Spark's own wraps around, or becomes null."""
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


def by_key(frame: DataFrame, row_format: RowFormat, tasks: int) -> DataFrame:
    """The frame with all rows of a partition in one task, in the order of the primary key and `order_by`."""
    kinds = dict(frame.dtypes)
    order: list[Column] = []
    for name in row_format.key:
        order.append(frame[quoted(name)])
        if kinds[name] in FLOATING:
            order.append(frame[quoted(name)].cast("string"))  # 0.0 and -0.0 are equal to Spark, not to Cassandra
    order += [frame[name].asc_nulls_first() for name in row_format.order]
    parts = [frame[quoted(name)] for name in row_format.partition_key]
    return frame.repartition(tasks, *parts).sortWithinPartitions(*order)


def encoded(sorted_frame: DataFrame, row_format: RowFormat) -> DataFrame:
    """The rows as bytes. A row that the table cannot hold fails the job."""
    columns = [f"{quoted(name)} binary" for name in row_format.kinds] if row_format.accumulates else [f"{ROW} binary"]
    columns += [f"{KEY} binary"]
    columns += [f"{DELETE} boolean"] if row_format.deletes else []
    columns += [f"{EXPIRY} bigint"] if row_format.expires else []
    return sorted_frame.mapInArrow(partial(workers.staged, row_format=row_format), ", ".join(columns))


def with_errors(sorted_frame: DataFrame, row_format: RowFormat) -> DataFrame:
    """The rows, each with the reason why the table cannot hold it, or null, in the column `_error`."""
    from pyspark.sql import types as t

    schema = t.StructType([*sorted_frame.schema.fields, t.StructField(ERROR, t.StringType())])
    return sorted_frame.mapInArrow(partial(workers.with_errors, row_format=row_format), schema)
