"""What the client knows of a query before it starts, and refuses: afterwards only the server knows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal._version import __version__
from epochal.sinks.storage.connect import check_scheme, full_path
from epochal.spark_plugins.binding import REFUSED
from epochal.spark_plugins.remote.calls import NO_EPOCHAL, no_epochal
from epochal.txn.errors import OptionError, Refused, UnsupportedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.txn.events import Observer
    from epochal.txn.participant import Participant

TRIGGERS = {
    "continuous_checkpoint_interval": "ContinuousTrigger",
    "real_time_batch_duration": "RealTimeTrigger",
}
UNNAMED = "epochal-unnamed-"  # how the names begin of queries that the user gave none
ASYNCHRONOUS = "asyncprogresstrackingenabled"


@dataclass(frozen=True, slots=True)
class RemoteQuery:
    """What goes to the server with the writer: how its process finds the query and its checkpoint."""

    name: str  # no two active queries of a session have the same
    checkpoint: str  # in full, as the server resolves it
    output_mode: str  # append, update or complete
    version: str = __version__

    @property
    def given_name(self) -> str | None:
        """The name that the user gave it."""
        return None if self.name.startswith(UNNAMED) else self.name


def is_remote(stream: Any) -> bool:
    """Whether a DataStreamWriter is one of Spark Connect."""
    return hasattr(stream, "_write_proto")


def session_of(stream: Any) -> SparkSession:
    """The session that will start the query."""
    session: SparkSession = stream._session
    return session


def columns_of(stream: Any) -> list[str]:
    """The columns of the frame that will be written."""
    from pyspark.sql.connect.dataframe import DataFrame

    return list(DataFrame(stream._write_stream._child, stream._session).columns)


def check_sinks(sinks: Sequence[Participant[Any]]) -> None:
    """Refuse sinks and options that need a JVM, all of them in one error."""
    found = []
    for sink in sinks:
        connect = sink.connect
        faults = ["it is not known to work on Spark Connect"] if connect is None else connect.connect_faults()
        found += [f"sink {sink.name!r}: {fault}" for fault in faults]
    if found:
        raise OptionError("not on Spark Connect", found)


def check_observers(observers: Sequence[Observer]) -> None:
    """Refuse observers that cannot be sent to the server, where the events are."""
    from pyspark import cloudpickle

    found = []
    for observer in observers:
        try:
            cloudpickle.dumps(observer)  # type: ignore[no-untyped-call]  # PySpark does not type it
        except Exception as fault:  # noqa: BLE001  # it depends on what the object holds
            found.append(f"observers: {observer!r} cannot be sent to the server: {fault}. metrics= needs no observer")
    if found:
        raise OptionError("not on Spark Connect", found)


def prepared(stream: Any) -> RemoteQuery:
    """The facts of a query that is about to start. It gets a name if it has none. Refused if it cannot be bound."""
    proto = stream._write_proto
    options = {key.lower(): value for key, value in proto.options.items()}
    trigger = TRIGGERS.get(str(proto.WhichOneof("trigger")))
    if trigger is None and options.get(ASYNCHRONOUS, "false").lower() == "true":
        trigger = "AsyncProgressTrackingMicroBatchExecution"
    if trigger is not None:
        raise UnsupportedQuery(f"this query cannot be exactly once: {REFUSED[trigger]}. Nothing was written")
    location = options.get("checkpointlocation")
    if not location:
        raise Refused(
            "the query has no checkpointLocation. Nothing was written. On Spark Connect it must be an option of the "
            "query itself: .option('checkpointLocation', 'checkpoints/orders')"
        )
    if not proto.query_name:
        stream.queryName(f"{UNNAMED}{uuid.uuid4()}")
    checkpoint = full_path(session_of(stream), location)
    check_scheme(checkpoint)
    return RemoteQuery(proto.query_name, checkpoint, (proto.output_mode or "append").lower())


def start(stream: Any, writer: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start the query. Refused if the server's Python cannot load the writer."""
    from pyspark.errors import PySparkException

    try:
        query: StreamingQuery = stream.foreachBatch(writer).start()
    except PySparkException as fault:
        if NO_EPOCHAL not in str(fault):
            raise
        raise no_epochal() from fault
    return query
