"""Would Spark write a frame with these options? Asked of Spark's own code, before anything is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from epochal.sinks.files.formats import avro
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies import buckets as bucketing
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
    """What keeps the frame from being written, from its columns alone."""
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
        return [*found, f"Spark cannot write this frame as {options.format}: no column is left but those of buckets"]
    told = _complaint(written, options)
    return found if told is None else [*found, told]


def _complaint(frame: DataFrame, options: FileOptions) -> str | None:
    """What Spark's writer has against the columns, or against its options."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    given = {**options.writer_options, **({"compression": options.compression} if options.compression else {})}
    try:
        _prepare(frame, options.format, given)
    except AnalysisException as fault:
        return f"Spark cannot write this frame as {options.format}: {_brief(fault)}"
    except IllegalArgumentException as fault:
        return f"Spark's writer says: {_brief(fault)}"
    except Py4JJavaError as fault:
        kind, told = avro.complaint(fault) or ("", "")
        if not told:
            raise
        said = "Spark's writer says" if kind == avro.BAD_OPTION else "Spark cannot write this frame as avro"
        return f"{said}: {told}"
    except Py4JError as fault:
        # A Spark that has these steps elsewhere. The first epoch will tell.
        log.debug("the frame was not checked: %s", fault)
    return None


def _prepare(frame: DataFrame, format_: str, given: dict[str, str]) -> None:
    """What Spark does before a job that writes: look at the columns and the options."""
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
    """The first line: behind it Spark shows its plan."""
    return str(fault).partition("\n")[0].rstrip(". ")
