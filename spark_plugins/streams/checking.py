"""Checks streams as far as that is possible without starting them. Writes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.targets import why_unwritable
from epochal.spark_plugins.before_start import reserved_columns
from epochal.spark_plugins.streams import frames, secrets
from epochal.spark_plugins.streams.definition import StreamDefinition, define
from epochal.spark_plugins.streams.java_faults import noting
from epochal.spark_plugins.streams.reading import Given
from epochal.spark_plugins.streams.report import EXISTING, NEW, Report, StreamReport
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.files import is_local, join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Checked:
    """The streams, what was found about them, and their frames as far as they could be made."""

    report: Report
    streams: Sequence[StreamDefinition]
    frames: dict[str, DataFrame] = field(default_factory=dict)


def check_settings(given: Given, redaction: str = secrets.DEFAULT) -> Checked:
    """What the texts alone show: options, names, secrets. Needs no session."""
    streams = define(given, redaction)
    report = Report(given.what, faults=list(given.faults))
    for stream in streams:
        found = StreamReport(stream.name, secrets=stream.secrets)
        found.source = stream.source.format if stream.source is not None else ""
        found.sinks = [sink.name for sink in stream.writer.sinks] if stream.writer is not None else []
        found.checkpoint = stream.options.checkpoint if stream.options is not None else ""
        for fault in stream.faults:
            found.fault(fault)
        report.streams.append(found)
    report.faults += _same("query_name", [(stream.query_name, stream.name) for stream in streams])
    journals = [(own["journal"], name) for name, own in given.streams.items() if "journal" in own]
    report.faults += _same("journal", journals)
    return Checked(report, streams)


def check_with_spark(spark: SparkSession, checked: Checked) -> Checked:
    """The rest: sources, queries, columns, output modes, checkpoints and targets of all streams."""
    made: dict[str, DataFrame] = {}
    places: list[tuple[str, str]] = []
    targets: list[tuple[str, str]] = []
    for stream, report in zip(checked.streams, checked.report.streams, strict=True):
        frame = frames.build(spark, stream, report)
        if frame is not None:
            made[stream.name] = frame
            report.columns = [f"{column.name} {column.dataType.simpleString()}" for column in frame.schema]
            _check_frame(spark, stream, frame, report)
        places += [(place, stream.name) for place in _check_checkpoint(spark, stream, report)]
        if len(checked.streams) > 1 and stream.writer is not None:
            targets += [(place, stream.name) for place in _targets(stream.writer, report)]
    checked.report.faults += _same("checkpoint", places) + _same("target", targets)
    return Checked(checked.report, checked.streams, made)


def _check_frame(spark: SparkSession, stream: StreamDefinition, frame: DataFrame, report: StreamReport) -> None:
    """The columns and the output mode, for Spark and for each sink."""
    mode = stream.options.output_mode if stream.options is not None else None
    if mode is not None:
        frames.check_output_mode(spark, frame, mode, f"{stream.prefix}output_mode={mode}", report)
    for fault in reserved_columns(frame.columns):
        report.fault(fault)
    for sink in stream.writer.sinks if stream.writer is not None else ():
        with noting(report, ""):
            for fault in sink.check_frame(frame):
                report.fault(f"sink {sink.name!r}: {fault}")
        if mode is not None:
            with noting(report, ""):
                sink.check_output_mode(mode)


def _check_checkpoint(spark: SparkSession, stream: StreamDefinition, report: StreamReport) -> list[str]:
    """Whether a start would be refused. Returns where the checkpoint is, if that could be found out."""
    if stream.options is None:
        return []
    location, where = stream.options.checkpoint, f"{stream.prefix}checkpoint"
    with noting(report, where):
        files, path = resolve(location, spark)
        if is_local(path) and (why := why_unwritable(path)):
            report.fault(f"{where}: {why}")
            return [path]
        report.state = EXISTING if files.length(join(path, "metadata")) is not None else NEW
        if stream.writer is not None:
            with noting(report, ""):
                stream.writer.check_location(location, spark)
            with noting(report, ""):
                driver = stream.writer.running_driver(location, spark)
                report.driver, report.runs = (driver.to_json(), str(driver)) if driver is not None else (None, "")
        return [path]
    return []


def open_metrics(spark: SparkSession, checked: Checked) -> None:
    """Open the endpoints of all streams before one of them starts and takes over from a driver that runs."""
    for stream, report in zip(checked.streams, checked.report.streams, strict=True):
        _, options, writer = stream.whole()
        with noting(report, f"{stream.prefix}metrics"):
            writer.open_metrics(options.checkpoint, spark)


def _targets(writer: EpochWriter, report: StreamReport) -> list[str]:
    """What each sink of a stream writes to, however it is spelled."""
    found = []
    for sink in writer.sinks:
        with noting(report, ""):
            memory = sink.open(str(uuid.uuid4()))
            found.append(memory.identity or memory.target)
    return list(dict.fromkeys(found))  # two sinks of one stream are compared when it is checked


def _same(what: str, places: Sequence[tuple[str, str]]) -> list[str]:
    """A fault for each place that several streams use."""
    users: dict[str, list[str]] = {}
    for place, name in places:
        users.setdefault(place, []).append(name)
    return [
        f"streams {', '.join(map(repr, names))} have the same {what}, {place}; give each its own"
        for place, names in users.items()
        if len(names) > 1
    ]
