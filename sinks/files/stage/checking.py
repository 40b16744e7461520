"""Checks by Spark's own code whether it can write a frame with these options, before anything is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from epochal.sinks.files.formats import avro
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies import buckets as bucketing
from epochal.sinks.storage.connect import is_connect
from epochal.txn.errors import BadRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("epochal")

SOURCES = "org.apache.spark.sql.execution.datasources"
WRITERS = {
    "parquet": f"{SOURCES}.parquet.ParquetFileFormat",
    "orc": f"{SOURCES}.orc.OrcFileFormat",
    "avro": avro.SOURCE,
    "json": f"{SOURCES}.json.JsonFileFormat",
    "csv": f"{SOURCES}.csv.CSVFileFormat",
    "text": f"{SOURCES}.text.TextFileFormat",
    "xml": f"{SOURCES}.xml.XmlFileFormat",
}


def faults(frame: DataFrame, options: FileOptions) -> list[str]:
    """What keeps the frame from being written, as far as its columns show."""
    from pyspark.errors import PySparkException

    found = []
    for bucket in options.buckets:
        try:
            frame.withColumns(bucketing.columns(frame, (bucket,)))
        except BadRows as fault:
            found.append(str(fault))
        except PySparkException as fault:
            found.append(f"bucket {bucketing.folder_of(bucket)!r}: {_brief(fault)}")
    written = frame
    if options.drops_bucket_columns:
        written = frame.drop(*(b for b in options.buckets if isinstance(b, str)))
    if not written.columns:
        return [*found, f"Spark cannot write this frame as {options.format}: it has only bucket columns"]
    # On Spark Connect there is no JVM to ask: the first epoch shows whether it can write the frame.
    complaint = None if is_connect(frame.sparkSession) else _complaint(written, options)
    return found if complaint is None else [*found, complaint]


def _complaint(frame: DataFrame, options: FileOptions) -> str | None:
    """Why Spark's writer rejects the columns or its options; None if it does not."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    given = {**options.writer_options, **({"compression": options.compression} if options.compression else {})}
    try:
        _prepare(frame, options.format, given)
    except AnalysisException as fault:
        return f"Spark cannot write this frame as {options.format}: {_brief(fault)}"
    except IllegalArgumentException as fault:
        return f"Spark's writer says: {_brief(fault)}"
    except Py4JJavaError as fault:
        kind, reason = avro.complaint(fault) or ("", "")
        if not reason:
            raise
        start = "Spark's writer says" if kind == avro.BAD_OPTION else "Spark cannot write this frame as avro"
        return f"{start}: {reason}"
    except Py4JError as fault:
        # Another version of Spark, with other internals. Then the first epoch shows whether it can write the frame.
        log.debug("frame not checked", extra={"error": str(fault)})
    return None


def _prepare(frame: DataFrame, format_: str, given: dict[str, str]) -> None:
    """The steps that Spark takes before a job that writes: it checks the columns and the options."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    writer = _named(jvm, WRITERS[format_])()
    schema = frame._jdf.schema()
    steps = _named(jvm, f"{SOURCES}.DataSourceUtils")
    steps.checkFieldNames(writer, schema)
    steps.verifySchema(writer, schema, False)
    maps = getattr(_named(jvm, "org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$"), "MODULE$")
    job = jvm.org.apache.hadoop.mapreduce.Job.getInstance(spark._jsc.hadoopConfiguration())
    writer.prepareWrite(spark._jsparkSession, job, maps.apply(jvm.PythonUtils.toScalaMap(given)), schema)


def _named(jvm: Any, name: str) -> Any:
    for part in name.split("."):
        jvm = getattr(jvm, part)
    return jvm


def _brief(fault: Exception) -> str:
    """The first line; Spark's plan comes after it."""
    return str(fault).partition("\n")[0].rstrip(". ")
