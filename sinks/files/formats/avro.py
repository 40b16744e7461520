"""Avro: Spark's writer for it, its errors about frames that do not fit, and joining files.

An Avro file is a head, which has the schema and the codec, and blocks of rows. Pieces of one schema are joined by
copying their blocks. No row is decoded, so none can change, and schemas that Spark can write but not read are no
problem.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.sinks.storage import hadoop_errors
from epochal.sinks.storage.hadoop import python_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark 4.2 brings the code, and only the jar spark-avro brings the name "avro".
SOURCE = "org.apache.spark.sql.avro.AvroFileFormat"
CODECS = ("snappy", "deflate", "zstandard", "bzip2", "xz", "uncompressed")
BAD_OPTION = "org.apache.avro.SchemaParseException"
BAD_FRAME = "org.apache.spark.sql.avro.IncompatibleSchemaException"
# They decide what a file's head says about its dates and times.
HEAD_SETTINGS = ("spark.sql.avro.datetimeRebaseModeInWrite", "spark.sql.session.timeZone")
_VALUE = re.compile(r'because ".*" cannot be written', re.DOTALL)


def head_of(spark: SparkSession) -> dict[str, str]:
    """What a file's head depends on, besides the frame's columns and the writer's options."""
    return {"version": spark.version} | {name: str(spark.conf.get(name)) for name in HEAD_SETTINGS}


def complaint(fault: Py4JError) -> tuple[str, str] | None:
    """The class and the text of Avro's error about a frame or an option, if that is why a job failed."""
    found = None
    for kind, message in hadoop_errors.chain(fault):
        if kind in (BAD_OPTION, BAD_FRAME) or message.startswith("[AVRO_"):
            # The innermost is the one that names the column. It may hold a value, too.
            found = kind, _VALUE.sub("because a value cannot be written", hadoop_errors.in_one_line(message))
    return found


class Joiner:
    """Joins files in Spark's JVM, which has Avro's own code and reaches every file system."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()
        # Looked up once: each step of a Java name is a call into the JVM, and there may be thousands of pieces.
        self._path = jvm.org.apache.hadoop.fs.Path
        self._codec = jvm.org.apache.avro.file.CodecFactory
        self._stream = jvm.org.apache.avro.file.DataFileStream
        self._writer = jvm.org.apache.avro.file.DataFileWriter
        self._from_schema = jvm.org.apache.avro.generic.GenericDatumReader
        self._to_schema = jvm.org.apache.avro.generic.GenericDatumWriter

    def join(self, path: str, pieces: Sequence[str]) -> int:
        """Copy the blocks of all pieces; the length of the result.

        Schema, codec and metadata in the head are those of the first.
        """
        with python_errors(path):
            system = self._path(path).getFileSystem(self._conf)
            output = system.create(self._path(path), True)
            with closing(output), closing(self._writer(self._to_schema())) as whole:
                for number, piece in enumerate(pieces):
                    with python_errors(piece), closing(self._open(system, piece)) as part:
                        if number == 0:
                            self._begin(whole, part, output)
                        whole.appendAllFrom(part, False)  # False: blocks of the same codec stay as they are
                whole.flush()
                output.hsync()
                return int(output.getPos())

    def _open(self, system: Any, piece: str) -> Any:
        return self._stream(system.open(self._path(piece)), self._from_schema())

    def _begin(self, whole: Any, first: Any, output: Any) -> None:
        whole.setCodec(self._codec.fromString(first.getMetaString("avro.codec") or "null"))
        for key in first.getMetaKeys():
            if not key.startswith("avro."):
                whole.setMeta(key, first.getMeta(key))
        whole.create(first.getSchema(), output)
