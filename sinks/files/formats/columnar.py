"""Row counts from the footers of Parquet and ORC files, and joining files without decoding a value.

A row group (ORC's stripe) is self-contained, so large pieces are joined by copying their row groups into a file with a
new footer. Spark merges pieces with small row groups instead (`joining.merge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage import java_code
from epochal.sinks.storage.hadoop import HadoopFiles, python_errors
from epochal.sinks.storage.paths import spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("parquet", "orc")


class Columnar:
    """Reads footers and copies row groups in Spark's JVM, which has the formats' own code and reaches every file."""

    def __init__(self, spark: SparkSession) -> None:
        files = HadoopFiles(spark).calls  # before the class that uses it
        self._calls: Any = java_code.new(spark, "epochal.sinks.files.formats", "ColumnarCalls")
        self._calls.use(spark._jsc.hadoopConfiguration(), files)

    def rows(self, format_: str, paths: Sequence[str]) -> list[int]:
        """The rows of each file. OSError if a footer cannot be read, as one that is encrypted."""
        if not paths:
            return []
        with python_errors(paths[0]):
            counts = str(self._calls.rows(format_, "\0".join(map(spark_path, paths))))
        return [int(count) for count in counts.split(" ")]

    def join(self, format_: str, path: str, pieces: Sequence[str]) -> int | None:
        """Copy the row groups of all pieces into one file; its length. None if they are not alike, or encrypted."""
        with python_errors(path):
            length = int(self._calls.join(format_, spark_path(path), "\0".join(map(spark_path, pieces))))
        return length if length >= 0 else None
