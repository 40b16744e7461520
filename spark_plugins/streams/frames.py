"""The frame that a stream writes: its source, a watermark, one query over it. Nothing is run and nothing written."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from epochal.sinks.config.options import nearest
from epochal.spark_plugins.streams.definition import StreamDefinition
from epochal.spark_plugins.streams.java_faults import noting
from epochal.spark_plugins.streams.options import Source
from epochal.spark_plugins.streams.report import StreamReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("epochal")

VIEW = "source"  # the name of the source in the SQL
BUILT_IN = (
    "csv",
    "json",
    "kafka",
    "orc",
    "parquet",
    "rate",
    "rate-micro-batch",
    "socket",
    "text",
    "xml",
    "avro",
    "delta",
)
NO_STREAM = f"the query reads no stream. Read from the view {VIEW}, such as SELECT * FROM {VIEW}"


@dataclass(frozen=True)
class Built:
    """What could be made of a stream: its frame, and one that has its columns though something is wrong with it."""

    frame: DataFrame | None = None
    columns: DataFrame | None = None


def build(spark: SparkSession, stream: StreamDefinition, report: StreamReport) -> Built:
    """The frame of a stream. Whatever is wrong is noted, also behind a fault, as far as it can be seen."""
    sql, where = stream.sql, f"{stream.prefix}sql"
    loaded = None
    if stream.source is not None:
        loaded = _loaded(spark, stream.source, f"{stream.prefix}source", report)
    if loaded is None:
        if sql is not None:
            _parsed(spark, sql, where, report)
        return Built()
    marked = loaded if stream.watermark is None else _with_watermark(loaded, stream, report)
    found = loaded if marked is None else marked
    if sql is not None:
        queried = _queried(spark, found, sql, where, report)
        if queried is None:
            return Built()
        found = queried
    return Built(found if marked is not None else None, found)


def _loaded(spark: SparkSession, source: Source, where: str, report: StreamReport) -> DataFrame | None:
    before = len(report.faults)
    with noting(report, where):
        reader = spark.readStream.format(source.format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path) if source.path is not None else reader.load()
    if source.format not in BUILT_IN and len(report.faults) > before:
        hint = nearest(source.format, BUILT_IN).removeprefix("; ")
        report.faults[-1] += f". {hint.capitalize()}" if hint else ""
    return None


def _with_watermark(frame: DataFrame, stream: StreamDefinition, report: StreamReport) -> DataFrame | None:
    assert stream.watermark is not None
    column, where = stream.watermark.column, f"{stream.prefix}watermark"
    if column not in frame.columns:
        report.fault(f"{where}.column={column!r}: the source has no such column{nearest(column, frame.columns)}")
        return None
    with noting(report, where):
        return frame.withWatermark(column, stream.watermark.delay)
    return None


def _parsed(spark: SparkSession, sql: str, where: str, report: StreamReport) -> str | None:
    """The text of one query; None if it is none. A statement would be carried out at once, so it is refused first."""
    text = sql.strip().rstrip("; \n\t")
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    with noting(report, where):
        parser.parsePlan(text)
        if _is_query(parser, text):
            return text
        report.fault(f"{where}: one SELECT over the view {VIEW}; other statements and several of them are refused")
    return None


def _queried(spark: SparkSession, frame: DataFrame, sql: str, where: str, report: StreamReport) -> DataFrame | None:
    """The result of the query."""
    text = _parsed(spark, sql, where, report)
    if text is None:
        return None
    with noting(report, where):
        frame.createOrReplaceTempView(VIEW)
        try:
            found = spark.sql(text)
        finally:
            spark.catalog.dropTempView(VIEW)
        if found.isStreaming:
            return found
        report.fault(f"{where}: {NO_STREAM}")
    return None


def _is_query(parser: Any, text: str) -> bool:
    """Whether a statement that Spark can parse is a query: only a query can stand in parentheses."""
    from pyspark.errors import ParseException

    try:
        parser.parsePlan(f"SELECT * FROM (\n{text}\n)")
    except ParseException:
        return False
    return True


def check_output_mode(spark: SparkSession, frame: DataFrame, mode: str, where: str, report: StreamReport) -> None:
    """Note what Spark would refuse when the query starts, such as an aggregation that appends without a watermark."""
    jvm: Any = spark._jvm
    with noting(report, where):
        try:
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
                frame._jdf.queryExecution().analyzed(),
                getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())(),
            )
        except Py4JJavaError:
            raise
        except Py4JError as fault:
            # Another version of Spark, with other internals. Then the start of the query refuses it.
            log.debug("output mode not checked", extra={"error": str(fault)})
