"""``epochal run`` and ``epochal check``: streams that a file or Spark's settings describe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from epochal.cli.text import paint, print_answer, show, table
from epochal.sinks.config.options import Faults
from epochal.txn.errors import OptionError

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
    checked, spark = _checked(path, names, for_running=False)
    if spark is not None:
        spark.stop()
    report = checked.report
    print_answer(json.dumps(report.to_json(), indent=2) if as_json else _text(report))
    return report.code


def run(path: str | None, names: Sequence[str]) -> int:
    """Check all streams, then run them until they end."""
    from epochal.spark_plugins.streams.checking import open_metrics

    checked, spark = _checked(path, names, for_running=True)
    report = checked.report
    if spark is not None and not report.code:
        open_metrics(spark, checked)
    if report.code or spark is None:
        show(f"{paint('epochal:', 'red', sys.stderr)} nothing was started\n{report.details()}", sys.stderr)
        return report.code
    from py4j.protocol import Py4JError

    from epochal.spark_plugins.streams.running import Running

    running = Running(
        say=show,
        complain=lambda text: show(f"{paint('epochal:', 'red', sys.stderr)} {text}", sys.stderr),
    )
    for line in report.running:
        show(line)
    code = running.run(spark, checked)
    with suppress(Py4JError, OSError):  # the JVM may be what failed
        spark.stop()
    return code


def _checked(path: str | None, names: Sequence[str], *, for_running: bool) -> tuple[Checked, SparkSession | None]:
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
    if spark is None and not any(stream.source is not None for stream in checked.streams):
        return checked, None
    if spark is None and for_running and checked.report.code:
        return checked, None
    if spark is None:
        spark = sessions.own_session(of_session, master=None if for_running else CHECKING_MASTER)
    return check_with_spark(spark, checked), spark


def _text(report: Report) -> str:
    rows = [
        [stream.name, stream.source or "?", ", ".join(stream.sinks) or "?", stream.state, stream.verdict]
        for stream in report.streams
    ]
    shown = table(["STREAM", "SOURCE", "SINKS", "CHECKPOINT", "VERDICT"], rows) if rows else ""
    return "\n\n".join(filter(None, [shown, report.details()]))
