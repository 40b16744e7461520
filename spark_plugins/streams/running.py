"""Runs the streams of one application until all have ended, one has failed, or a signal stops them.

With `StandingBy`, each stream is first waited for, in a thread of its own, until it is the turn of this application.
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
from epochal.spark_plugins.standby.judging import WhenEnded
from epochal.spark_plugins.standby.standing_by import waited
from epochal.spark_plugins.streams.checking import Checked
from epochal.spark_plugins.streams.definition import StreamDefinition
from epochal.spark_plugins.streams.java_faults import brief
from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK
from epochal.spark_plugins.streams.secrets import mask
from epochal.spark_plugins.streams.signals import stopping_by
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import EpochalError, FencedOut, NotSettled, SettlingFailed, SparkGone, TwoDrivers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

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


@dataclass(frozen=True)
class TurnCame:
    """A stream was taken over; or, without a query, it is waited for no longer, and why."""

    stream: str
    query: EpochQuery | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class StandingBy:
    """How streams are waited for; the options are those of `epochal.standby`."""

    lease: float | str = 10.0
    when_ended: WhenEnded = "wait"
    zookeeper: str | None = None
    warm: bool = True


class Running:
    """All streams of the application."""

    def __init__(self, *, say: Say, complain: Say, standing_by: StandingBy | None = None) -> None:
        self._say, self._complain = say, complain
        self._standing_by = standing_by
        # Its put may be called by a signal's handler.
        self._events: SimpleQueue[Signalled | Ended | TurnCame] = SimpleQueue()
        self._streams: dict[str, StreamDefinition] = {}  # those that run, or are waited for
        self._queries: dict[str, EpochQuery] = {}
        self._code = OK
        self._stopping = threading.Event()
        self._spark: SparkSession | None = None

    def run(self, spark: SparkSession, checked: Checked) -> int:
        """Start all streams and wait for their end. Returns the exit code."""
        self._spark = spark
        with stopping_by(spark, lambda name: self._events.put(Signalled(name))):
            for stream in checked.streams:
                if not self._stopping.is_set():
                    self._start(stream, checked.frames[stream.name])
            while self._streams:
                match self._events.get():
                    case Signalled() as event:
                        self._on_signal(event)
                    case TurnCame() as event:
                        self._on_turn(event)
                    case Ended() as event:
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
        if self._standing_by is not None:
            self._streams[stream.name] = stream
            self._say(f"stream {stream.name!r}: standing by, checkpoint {options.checkpoint}")
            self._in_thread("standby", stream.name, self._stand_by, stream.name, writer, prepared, self._standing_by)
            return
        try:
            query = writer.start(prepared)
        except (EpochalError, PySparkException, Py4JError, OSError) as fault:
            self._fail(stream, fault)
            return
        self._streams[stream.name] = stream
        self._started(stream.name, query)

    def _started(self, name: str, query: EpochQuery) -> None:
        self._queries[name] = query
        _, options, _ = self._streams[name].whole()
        self._say(f"stream {name!r} started: query {query.id}, checkpoint {options.checkpoint}")
        self._in_thread("stream", name, self._await, name, query)

    def _in_thread(self, what: str, name: str, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name=f"epochal-{what}-{name}", daemon=True).start()

    def _stand_by(self, name: str, writer: EpochWriter, prepared: DataStreamWriter, how: StandingBy) -> None:
        """In a thread of the stream's own: wait for our turn, and start the query."""
        try:
            query, why = waited(
                writer,
                prepared,
                lease=how.lease,
                when_ended=how.when_ended,
                zookeeper=how.zookeeper,
                warm=how.warm,
                stop=self._stopping,
            )
        except Exception as fault:  # noqa: BLE001  # whatever it is, the application must hear of it
            self._events.put(Ended(name, fault))
        else:
            self._events.put(TurnCame(name, query, why))

    def _await(self, name: str, query: EpochQuery) -> None:
        """In a thread of the stream's own: wait for its end, and settle it."""
        fault: Exception | None = None
        try:
            query.awaitTermination()
        except Exception as raised:  # noqa: BLE001  # whatever it is, the application must hear of it
            fault = raised
        self._events.put(Ended(name, fault))

    def _on_turn(self, event: TurnCame) -> None:
        if event.query is None:
            del self._streams[event.stream]
            self._say(f"stream {event.stream!r}: standing by no longer: {event.why}")
            return
        self._started(event.stream, event.query)
        if self._stopping.is_set():  # it was asked to stop while the query started
            self._stop(event.stream, event.query)

    def _on_signal(self, event: Signalled) -> None:
        if self._stopping.is_set():
            self._say(f"{event.name}: already stopping; streams are being settled")
            return
        self._say(f"{event.name}: stopping all streams")
        self._stop_all()

    def _on_end(self, event: Ended) -> None:
        stream = self._streams.pop(event.stream)
        self._queries.pop(event.stream, None)
        if event.fault is not None:
            self._fail(stream, event.fault)
        else:
            self._say(self._ended(stream))

    def _ended(self, stream: StreamDefinition) -> str:
        """What a stream leaves: rows in open parts are settled, but nobody can read them yet."""
        _, options, writer = stream.whole()
        assert self._spark is not None  # `run` has set it
        try:
            left = writer.still_open(options.checkpoint, self._spark)
        except (EpochalError, Py4JError, OSError) as fault:
            return f"stream {stream.name!r} ended and is settled; what is in open parts could not be read: {fault}"
        if left is None:
            return f"stream {stream.name!r} ended; everything that it has checkpointed is visible"
        return f"stream {stream.name!r} ended and is settled, but {left}"

    def _fail(self, stream: StreamDefinition, fault: Exception) -> None:
        # Where several drivers stand by, one that was fenced is not wrong: started again, it stands by.
        passing = PASSING if self._standing_by is None else (*PASSING, FencedOut)
        is_refused = isinstance(fault, EpochalError) and not isinstance(fault, passing)
        self._code = max(self._code, FAULTS if is_refused else AWAY)
        self._complain(f"stream {stream.name!r} failed: {mask(reason(fault), stream.secrets)}")
        if self._standing_by is not None and not self._stopping.is_set():
            for query in self._queries.values():  # not in order: a standby is to go on with these too
                if query.run is not None:
                    query.run.failed(f"stopped because stream {stream.name!r} of the same application has failed")
        self._stop_all()

    def _stop_all(self) -> None:
        """Stop every query. The thread of each settles it and reports its end. Standbys stop waiting."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for name, query in self._queries.items():
            self._stop(name, query)

    def _stop(self, name: str, query: EpochQuery) -> None:
        self._in_thread("stop", name, _stop, query)


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
