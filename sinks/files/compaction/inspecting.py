"""What must be equal in Parquet, ORC and Avro files that become one, read from their footers by Spark's JVM.

A joined file is held to the same: if Spark would write it with another schema than its sources have, some reader would
see other values, and it is not published.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.sinks.files.compaction.choosing import Unfit
from epochal.sinks.storage import hadoop_errors
from epochal.sinks.storage.paths import spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
# What these packages throw is about the content of a file; a file system's faults are about reaching it.
_OF_CONTENT = ("org.apache.parquet.", "org.apache.orc.", "org.apache.avro.", "java.lang.")


@dataclass(frozen=True, slots=True)
class Facts:
    """What files must have in common, and how many rows one has, if its footer tells."""

    key: str
    rows: int | None = None


class Inspector:
    """Reads footers."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()
        # Each of these names is looked up in several calls to the JVM: once is enough.
        self._path = jvm.org.apache.hadoop.fs.Path
        self._parquet = jvm.org.apache.parquet.hadoop.ParquetFileReader
        self._input = jvm.org.apache.parquet.hadoop.util.HadoopInputFile
        self._orc = jvm.org.apache.orc.OrcFile
        self._avro = jvm.org.apache.avro.file.DataFileStream
        self._generic = jvm.org.apache.avro.generic.GenericDatumReader

    def facts(self, format_: str, path: str) -> Facts:
        """Of one file; Unfit if it is not what its name says, or encrypted."""
        read = {"parquet": self._of_parquet, "orc": self._of_orc, "avro": self._of_avro}[format_]
        try:
            return read(self._path(spark_path(path)))
        except Py4JError as fault:
            java: Any = getattr(fault, "java_exception", None)
            if java is not None and str(java.getClass().getName()).startswith(_OF_CONTENT):
                raise Unfit(f"cannot be read: {hadoop_errors.in_short(fault)}") from None
            raise hadoop_errors.from_java(path, fault) from None

    def _stream(self, path: Any) -> Any:
        return self._avro(path.getFileSystem(self._conf).open(path), self._generic())

    def _of_parquet(self, path: Any) -> Facts:
        reader = self._parquet.open(self._input.fromPath(path, self._conf))
        try:
            found = reader.getFileMetaData()
            if str(found.getEncryptionType()) != "UNENCRYPTED":
                raise Unfit("encrypted: the joined file would not be")
            told = str(found.getKeyValueMetaData().get(SPARK_SCHEMA))
            # Spark reads every column as one that may be null, and writes it so.
            schema = re.sub(r"\brequired\b", "optional", str(found.getSchema().toString()))
            told = re.sub(r'"(nullable|containsNull|valueContainsNull)":(true|false)', "", told)
            return Facts(f"{schema}\n{told}", int(reader.getRecordCount()))
        finally:
            reader.close()

    def _of_orc(self, path: Any) -> Facts:
        reader = self._orc.createReader(path, self._orc.readerOptions(self._conf))
        try:
            if len(reader.getColumnEncryptionKeys()):
                raise Unfit("encrypted: the joined file would not be")
            types = str(reader.getTypes().toString())
            # Its timestamps are local times of the zone in which the writer ran.
            zones = self._zones(reader) if "TIMESTAMP" in types else []
            return Facts("\n".join([types, *zones]), int(reader.getNumberOfRows()))
        finally:
            reader.close()

    def _zones(self, reader: Any) -> list[str]:
        rows = reader.rows()
        try:
            return sorted({str(rows.readStripeFooter(stripe).getWriterTimezone()) for stripe in reader.getStripes()})
        finally:
            rows.close()

    def _of_avro(self, path: Any) -> Facts:
        stream = self._stream(path)
        try:
            # The schema, the codec, and what Spark notes of the calendar that dates were written in.
            told = {str(key): bytes(stream.getMeta(key)) for key in stream.getMetaKeys()}
            return Facts("\n".join(f"{key} {told[key].decode('latin-1')}" for key in sorted(told)))
        finally:
            stream.close()
