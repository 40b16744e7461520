"""Checks streams as far as that is possible without starting them. Writes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage.targets import check_writable, why_unwritable
from epochal.spark_plugins import before_start
from epochal.spark_plugins.restore_marks import refuse_unfinished_restore
from epochal.spark_plugins.store_checkpoints import check_manager, resolve_checkpoint
from epochal.spark_plugins.streams import frames, secrets
from epochal.spark_plugins.streams.definition import StreamDefinition, define
from epochal.spark_plugins.streams.frames import Built
from epochal.spark_plugins.streams.java_faults import noting
from epochal.spark_plugins.streams.reading import Given
from epochal.spark_plugins.streams.report import EXISTING, NEW, Report, StreamReport
from epochal.txn.files import is_local, join
from epochal.txn.participant import Participant

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
        found.sinks = [sink.name for sink in stream.sinks]
        found.checkpoint = stream.checkpoint or ""
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
        built = frames.build(spark, stream, report)
        if built.frame is not None:
            made[stream.name] = built.frame
        _check_frame(spark, stream, built, report)
        places += [(place, stream.name) for place in _check_checkpoint(spark, stream, report)]
        _check_metrics(stream, report)
        if len(checked.streams) > 1:
            targets += [(place, stream.name) for place in _targets(stream.sinks, report)]
    checked.report.faults += _same("checkpoint", places) + _same("target", targets)
    return Checked(checked.report, checked.streams, made)


def _check_frame(spark: SparkSession, stream: StreamDefinition, built: Built, report: StreamReport) -> None:
    """The columns and the output mode, for Spark and for each sink. Without columns, whether targets can be written."""
    mode, columns = stream.output_mode, built.columns
    if mode is not None and built.frame is not None:
        frames.check_output_mode(spark, built.frame, mode, f"{stream.prefix}output_mode={mode}", report)
    if columns is not None:
        report.columns = [f"{column.name} {column.dataType.simpleString()}" for column in columns.schema]
    for fault in before_start.faults(stream.sinks, frame=columns, mode=mode):
        with noting(report, ""):
            if isinstance(fault, Exception):
                raise fault
            report.fault(fault)
    if columns is None:
        for sink in stream.sinks:
            with noting(report, ""):
                if (folder := before_start.folder_of(sink)) is not None:
                    check_writable(sink.name, folder)


def _check_checkpoint(spark: SparkSession, stream: StreamDefinition, report: StreamReport) -> list[str]:
    """Whether a start would be refused. Returns where the checkpoint is, if that could be found out."""
    if not stream.checkpoint:
        return []
    where = f"{stream.prefix}checkpoint"
    with noting(report, where):
        check_manager(stream.checkpoint, spark)
        files, path = resolve_checkpoint(stream.checkpoint, spark)
        refuse_unfinished_restore(files, path)
        if is_local(path) and (why := why_unwritable(path)):
            report.fault(f"{where}: {why}")
            return [path]
        report.state = EXISTING if files.length(join(path, "metadata")) is not None else NEW
        if stream.writer is not None:
            with noting(report, ""):
                stream.writer.check_place(files, path)
            with noting(report, ""):
                driver = stream.writer.running_driver(stream.checkpoint, spark)
                report.driver, report.runs = (driver.to_json(), str(driver)) if driver is not None else (None, "")
        return [path]
    return []


def _check_metrics(stream: StreamDefinition, report: StreamReport) -> None:
    """Whether the endpoint for metrics could listen. If the very stream runs here, it is its driver that does."""
    fault = None if stream.writer is None else stream.writer.metrics_fault()
    if fault is None:
        return
    if report.runs:
        report.runs_with_metrics = True
    else:
        report.fault(f"{stream.prefix}metrics: {fault}")


def open_metrics(spark: SparkSession, checked: Checked) -> None:
    """Open the endpoints of all streams before one of them starts and takes over from a driver that runs."""
    for stream, report in zip(checked.streams, checked.report.streams, strict=True):
        _, options, writer = stream.whole()
        with noting(report, f"{stream.prefix}metrics"):
            writer.open_metrics(options.checkpoint, spark)


def _targets(sinks: Sequence[Participant[Any]], report: StreamReport) -> list[str]:
    """What each sink of a stream writes to, however it is spelled."""
    found = []
    for sink in sinks:
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
