"""``epochal run`` and ``epochal check``: streams that a file or Spark's settings describe."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from epochal.cli import progress
from epochal.cli.spark_output import SparkOutput, hidden
from epochal.cli.text import paint, print_answer, show, table
from epochal.sinks.config.options import Faults
from epochal.txn.errors import OptionError, Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.spark_plugins.streams.checking import Checked
    from epochal.spark_plugins.streams.reading import Given
    from epochal.spark_plugins.streams.report import Report

CHECKING_MASTER = "local[2]"  # a check needs no cluster


def print_path() -> int:
    """Print the file that spark-submit takes."""
    spec = find_spec("epochal.run")
    assert spec is not None
    print(spec.origin)
    return 0


def check(path: str | None, names: Sequence[str], *, as_json: bool) -> int:
    """Check all streams, and print what was found."""
    with hidden() as output, progress.task(f"checking {path or 'the streams'}"):
        checked, spark = _checked(path, names, output, for_running=False)
        if spark is not None:
            spark.stop()
    report = checked.report
    print_answer(json.dumps(report.to_json(), indent=2) if as_json else _text(report))
    return report.code


def run(path: str | None, names: Sequence[str], standing_by: Mapping[str, Any] | None = None) -> int:
    """Check all streams, then run them until they end. With `standing_by`, each when the driver that runs it is gone.

    It has the options of `epochal.standby` that were given.
    """
    from epochal.spark_plugins.streams.checking import open_metrics

    with hidden() as output:
        with progress.task(f"starting {path or 'the streams'}"):
            checked, spark = _checked(path, names, output, for_running=True)
            report = checked.report
            if spark is not None and not report.code and standing_by is None:  # else the driver that runs serves them
                open_metrics(spark, checked)
        if report.code or spark is None:
            _complain(f"nothing was started\n{report.details()}")
            return report.code
        code = _run(spark, checked, standing_by)
        if code and output is not None and (saved := output.saved()):
            _complain(f"the last that Spark itself printed is in {saved}")
        return code


def _run(spark: SparkSession, checked: Checked, standing_by: Mapping[str, Any] | None) -> int:
    from py4j.protocol import Py4JError

    from epochal.spark_plugins.streams.running import Running, StandingBy

    how = None if standing_by is None else StandingBy(**standing_by)
    running = Running(say=show, complain=_complain, standing_by=how)
    for line in checked.report.running if how is None else ():
        show(line)
    code = running.run(spark, checked)
    with suppress(Py4JError, OSError):  # the JVM may be what failed
        spark.stop()
    return code


def _complain(text: str) -> None:
    show(f"{paint('epochal:', 'red', sys.stderr)} {text}", sys.stderr)


def _checked(
    path: str | None, names: Sequence[str], output: SparkOutput | None, *, for_running: bool
) -> tuple[Checked, SparkSession | None]:
    """What a check found; with the session, unless the texts alone show that nothing can run."""
    from epochal.spark_plugins.streams import secrets, sessions
    from epochal.spark_plugins.streams.checking import check_settings, check_with_spark
    from epochal.spark_plugins.streams.reading import from_file, from_settings

    submitted = sessions.is_submitted()
    if path is None and not submitted:
        raise OptionError("epochal", ["name a FILE, or let spark-submit give the settings: see `epochal run --help`"])
    spark = sessions.submitted_session() if submitted else None
    settings = dict(spark.conf.getAll) if spark is not None else {}
    given: Given = from_file(path) if path is not None else from_settings(settings)
    given = given.overlaid(settings).only(names)
    faults = Faults(given.what)
    of_session = secrets.resolve_session(given, faults)
    redaction = settings.get(secrets.REDACTION, of_session.get(secrets.REDACTION, secrets.DEFAULT))
    checked = check_settings(given, redaction)
    checked.report.faults += faults.found
    if spark is not None:
        checked.report.faults += sessions.differences(spark, of_session)
    if spark is None and not any(stream.source is not None or stream.sinks for stream in checked.streams):
        return checked, None
    if spark is None and for_running and checked.report.code:
        return checked, None
    if spark is None:
        spark = _own_session(of_session, None if for_running else CHECKING_MASTER, output, s3=given.names_s3)
    return check_with_spark(spark, checked), spark


def _own_session(
    settings: Mapping[str, str], master: str | None, output: SparkOutput | None, *, s3: bool
) -> SparkSession:
    """A session of this process. If Java does not even start, only what it printed says why."""
    from pyspark.errors import PySparkRuntimeError

    from epochal.spark_plugins.streams import sessions

    if output is None:
        return sessions.own_session(settings, master=master, s3=s3)
    try:
        return sessions.own_session(settings, master=master, output=output.writing, s3=s3)
    except Refused as fault:
        output.started()
        if not isinstance(fault.__cause__, PySparkRuntimeError) or not (last := output.last(3)):
            raise
        raise Refused(f"{fault}. Java printed: {'; '.join(last)}. -v shows all of it") from fault
    finally:
        output.started()


def _text(report: Report) -> str:
    rows = [
        [stream.name, stream.source or "?", ", ".join(stream.sinks) or "?", stream.state, stream.verdict]
        for stream in report.streams
    ]
    shown = table(["STREAM", "SOURCE", "SINKS", "CHECKPOINT", "VERDICT"], rows) if rows else ""
    return "\n\n".join(filter(None, [shown, report.details()]))
