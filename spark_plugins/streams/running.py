"""Runs the streams of one application until all have ended, one has failed, or a signal stops them.

Whatever ends it, every stream that was started is stopped and settled before the application exits.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from epochal.sinks.storage.hadoop_errors import in_short
from epochal.spark_plugins.query import EpochQuery
from epochal.spark_plugins.streams.checking import Checked
from epochal.spark_plugins.streams.definition import StreamDefinition
from epochal.spark_plugins.streams.java_faults import brief
from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK
from epochal.spark_plugins.streams.secrets import mask
from epochal.spark_plugins.streams.signals import stopping_by
from epochal.txn.errors import EpochalError, NotSettled, SettlingFailed, SparkGone, TwoDrivers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("epochal")

Say = Callable[[str], None]
PASSING = (NotSettled, SettlingFailed, SparkGone, TwoDrivers)  # a restart may help; other refusals would be repeated


@dataclass(frozen=True)
class Signalled:
    """A signal asked the application to stop."""

    name: str


@dataclass(frozen=True)
class Ended:
    """A stream has ended and is settled, or has failed."""

    stream: str
    fault: Exception | None = None


class Running:
    """All streams of the application."""

    def __init__(self, *, say: Say, complain: Say) -> None:
        self._say, self._complain = say, complain
        self._events: SimpleQueue[Signalled | Ended] = SimpleQueue()  # its put may be called by a signal's handler
        self._queries: dict[str, tuple[StreamDefinition, EpochQuery]] = {}
        self._code = OK
        self._stopping = False

    def run(self, spark: SparkSession, checked: Checked) -> int:
        """Start all streams and wait for their end. Returns the exit code."""
        with stopping_by(spark, lambda name: self._events.put(Signalled(name))):
            for stream in checked.streams:
                if not self._stopping:
                    self._start(stream, checked.frames[stream.name])
            left = set(self._queries)
            while left:
                event = self._events.get()
                if isinstance(event, Signalled):
                    self._on_signal(event)
                else:
                    left.discard(event.stream)
                    self._on_end(event)
        return self._code

    def _start(self, stream: StreamDefinition, frame: DataFrame) -> None:
        _, options, writer = stream.whole()
        prepared = (
            frame.writeStream.queryName(stream.query_name)
            .outputMode(options.output_mode)
            .trigger(**options.trigger_arguments)
            .option("checkpointLocation", options.checkpoint)
        )
        try:
            query = writer.start(prepared)
        except (EpochalError, PySparkException, Py4JError, OSError) as fault:
            self._fail(stream, fault)
            return
        self._queries[stream.name] = stream, query
        self._say(f"stream {stream.name!r} started: query {query.id}, checkpoint {options.checkpoint}")
        threading.Thread(
            target=self._await, args=(stream.name, query), name=f"epochal-{stream.name}", daemon=True
        ).start()

    def _await(self, name: str, query: EpochQuery) -> None:
        """In a thread of the stream's own: wait for its end, and settle it."""
        fault: Exception | None = None
        try:
            query.awaitTermination()
        except Exception as raised:  # noqa: BLE001  # whatever it is, the application must hear of it
            fault = raised
        self._events.put(Ended(name, fault))

    def _on_signal(self, event: Signalled) -> None:
        if self._stopping:
            self._say(f"{event.name}: already stopping; streams are being settled")
            return
        self._say(f"{event.name}: stopping all streams")
        self._stop_all()

    def _on_end(self, event: Ended) -> None:
        stream, _ = self._queries[event.stream]
        if event.fault is not None:
            self._fail(stream, event.fault)
        else:
            self._say(f"stream {stream.name!r} ended; everything that it has checkpointed is visible")

    def _fail(self, stream: StreamDefinition, fault: Exception) -> None:
        is_refused = isinstance(fault, EpochalError) and not isinstance(fault, PASSING)
        self._code = max(self._code, FAULTS if is_refused else AWAY)
        self._complain(f"stream {stream.name!r} failed: {mask(reason(fault), stream.secrets)}")
        self._stop_all()

    def _stop_all(self) -> None:
        """Stop every query. The thread of each settles it and reports its end."""
        if self._stopping:
            return
        self._stopping = True
        for name, (_, query) in self._queries.items():
            threading.Thread(target=_stop, args=(query,), name=f"epochal-stop-{name}", daemon=True).start()


def _stop(query: EpochQuery) -> None:
    try:
        query.request_stop()
    except (Py4JError, OSError) as fault:  # the JVM is gone; `_await` has noticed too
        log.debug("query could not be stopped", extra={"error": repr(fault)})


def reason(fault: Exception) -> str:
    """Why a stream failed, without the pages of Java that Spark adds."""
    if isinstance(fault, EpochalError):
        return str(fault)
    if isinstance(fault, PySparkException):
        return f"{cause_in(str(fault)) or brief(fault)}. Spark's log has the whole trace"
    if isinstance(fault, Py4JNetworkError | ConnectionError):
        return f"Spark's JVM is gone ({type(fault).__name__}). Start it again: nothing is lost"
    return in_short(fault)


def cause_in(text: str) -> str:
    r"""The error that a Python trace in Spark's message ends with; empty if there is none.

    >>> cause_in("[STREAM_FAILED] Traceback\n  File x\nbuiltins.ValueError: boom SQLSTATE: P0001\n\tat")
    'ValueError: boom'
    """
    errors = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception|Away)): (.+)$", text.partition("\n\tat ")[0], re.MULTILINE)
    return re.sub(r" *SQLSTATE: \w+", "", ": ".join(errors[-1])) if errors else ""
