"""Joins the pieces of a closed part into one file.

Row formats are joined by their bytes: in place if the file system can (HDFS concat, when the epoch commits), else by a
copy into the staging area. Avro files are always copied, block by block (`avro`), large Parquet and ORC files by their
row groups (`columnar`). Small ones are merged: Spark reads their rows and writes one file, while the epoch is staged.
Commit then only renames the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.files.formats import avro
from epochal.sinks.spark import write_counts
from epochal.sinks.spark.sessions import for_many_files, parallelism, set_for
from epochal.sinks.spark.values import quoted
from epochal.sinks.spark.write_counts import WriteCounts
from epochal.sinks.storage.paths import spark_path
from epochal.txn.files import Entry, Files, join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

BY_BYTES = ("json", "csv", "text")
BY_BLOCKS = ("avro",)
MERGED = ("parquet", "orc")
BY_BYTES_CODECS = (None, "none", "uncompressed", "gzip", "bzip2")  # their streams can be concatenated
GROUP = "_epochal_group"
# Paths are no patterns (Spark's own switch), and a file that cannot be read is an error, whatever the session's
# settings allow elsewhere.
STRICT = {"__globPaths__": "false", "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def shape_of(frame: DataFrame, format_: str, options: dict[str, str]) -> str:
    """The shape of a piece: its format, and a digest of its schema and options. Only pieces of one shape are joined.

    It is a digest because a schema may be long and an option may be a secret.
    """
    facts = options if format_ != "avro" else options | avro.head_of(frame.sparkSession)
    text = "\n".join([frame.schema.json(), *(f"{key}={facts[key]}" for key in sorted(facts))])
    return f"{format_} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def format_of(shape: str) -> str:
    """The format of pieces of a shape."""
    return shape.partition(" ")[0]


def source_of(format_: str) -> str:
    """The name by which Spark finds a format's reader and writer."""
    return avro.SOURCE if format_ == "avro" else format_


def header_of(frame: DataFrame, writer: Callable[[DataFrame], DataFrameWriter], files: Files, folder: str) -> bytes:
    """The header that Spark writes to each file of this frame: all that a file without rows has."""
    empty = frame.sparkSession.createDataFrame([], frame.schema).coalesce(1)
    writer(empty).option("header", "true").save(spark_path(folder))
    names = [entry.name for entry in files.walk(folder) if not entry.name.startswith(("_", "."))]
    found = b"".join(files.read(join(folder, name)) for name in names)
    files.delete(folder)
    return found


def merge(
    spark: SparkSession,
    format_: str,
    groups: Sequence[Sequence[str]],
    writer: Callable[[DataFrame], DataFrameWriter],
    folder: str,
    schema: StructType | None = None,
    *,
    published: bool = False,
) -> WriteCounts:
    """Write one file per group, below ``_epochal_group=<number>`` of the folder, in one job; what Spark counted.

    Without a `schema` Spark reads it from the files, which is another job. Pieces are identified by their path in the
    staging area, `published` files by their names, of which no two may be equal.
    """
    with set_for(spark, for_many_files(spark)):
        return _merge(spark, format_, groups, writer, folder, schema, published=published)


def _merge(
    spark: SparkSession,
    format_: str,
    groups: Sequence[Sequence[str]],
    writer: Callable[[DataFrame], DataFrameWriter],
    folder: str,
    schema: StructType | None,
    *,
    published: bool,
) -> WriteCounts:
    paths = [spark_path(path) for group in groups for path in group]
    reader = spark.read.options(**STRICT).format(format_)
    frame = (reader if schema is None else reader.schema(schema)).load(paths)
    if len(groups) == 1:
        place = spark_path(join(folder, f"{GROUP}=0"))
        return write_counts.written(frame.coalesce(1), place, lambda watched: writer(watched).save(place)).counts
    tail = name_of if published else _tail
    numbered = [(tail(path), number) for number, group in enumerate(groups) for path in group]
    known: Any = spark.createDataFrame(numbered, f"_epochal_piece string, {GROUP} int")
    from pyspark.sql import functions as f

    columns = frame.columns
    located = frame.withColumn("_epochal_piece", _name_column(frame) if published else _tail_column(frame))
    tasks = min(len(groups), 2 * parallelism(spark))
    whole = (
        located.join(f.broadcast(known), "_epochal_piece")
        .select(*map(quoted, columns), GROUP)
        .repartition(tasks, GROUP)
    )
    place = spark_path(folder)
    return write_counts.written(whole, place, lambda watched: writer(watched).partitionBy(GROUP).save(place)).counts


def merged_files(files: Files, folder: str) -> dict[int, list[Entry]]:
    """The files that `merge` wrote to a folder, by the number of their group."""
    found: dict[int, list[Entry]] = {}
    for entry in files.walk(folder):
        group, _, name = entry.name.partition("/")
        if group.startswith(GROUP) and not name.startswith(("_", ".")):
            found.setdefault(int(group.partition("=")[2]), []).append(entry)
    return found


def row_counts(spark: SparkSession, format_: str, paths: Sequence[str]) -> list[int]:
    """How many rows each file has; in text formats, lines."""
    from pyspark.sql import types as t

    if not paths:
        return []
    reader = spark.read.options(**STRICT).format("text" if format_ in BY_BYTES else source_of(format_))
    if format_ in BY_BYTES:
        reader = reader.option("lineSep", "\n")  # left alone, Spark takes a carriage return in a value for one too
    if format_ == "avro":  # none of its columns are needed, and Spark can write schemas that it cannot read
        reader = reader.schema(t.StructType())
    with set_for(spark, for_many_files(spark)):
        frame = reader.load([spark_path(path) for path in paths])
        counted = frame.groupBy(_tail_column(frame).alias("piece")).count().collect()
    found = {row["piece"]: int(row["count"]) for row in counted}
    return [found.get(_tail(path), 0) for path in paths]


def name_of(path: str) -> str:
    """The name of a file, without its folder."""
    return path.rpartition("/")[2]


def _tail(path: str) -> str:
    """The end of a piece's path, which identifies it: folder of the epoch, bucket and name."""
    return path[path.index("/_epochal/") :]


def _name_column(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return f.regexp_extract(_path_column(frame), "([^/]+)$", 1)


def _path_column(frame: DataFrame) -> Column:
    return frame.metadataColumn("_metadata")["file_path"]  # this way it may have a column of that name too


def _tail_column(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return f.regexp_extract(_path_column(frame), "(/_epochal/(?:open|staged)/[^/]+/[0-9.r]+(?:-[0-9a-z]+)?/.*)$", 1)
