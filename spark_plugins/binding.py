"""Finds the query that a batch belongs to, and its checkpoint.

Inside foreachBatch the frame's session is a clone without queries. The query's id is a local property of the
thread, and the query itself is in the state that all sessions share.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError

from epochal.txn.errors import Refused, UnsupportedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("epochal")

LOCATION = "spark.sql.streaming.checkpointLocation"
TEMPORARY = "temporary-"  # how Spark names a checkpoint without a location
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PLAIN = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
REFUSED = {
    "AsyncProgressTrackingMicroBatchExecution": (
        "asynchronous progress tracking writes commits/N late or not at all; "
        "remove the option asyncProgressTrackingEnabled"
    ),
    "ContinuousExecution": "continuous processing has no micro-batches; use trigger(processingTime=...)",
    "RealTimeTrigger": "real-time mode shows rows before the checkpoint; use trigger(processingTime=...)",
    "ContinuousTrigger": "continuous processing has no micro-batches; use trigger(processingTime=...)",
}


@dataclass(frozen=True, slots=True)
class Binding:
    """A running query as the protocol needs it."""

    query_id: str
    run_id: str
    checkpoint: str
    output_mode: str  # append, update or complete
    name: str | None  # queryName
    session: SparkSession  # the one that started the query: listeners must be added to it


def run_of_batch(batch_session: SparkSession) -> str | None:
    """The run id of the current foreachBatch: Spark uses it as the job group of the thread."""
    run_id = batch_session.sparkContext.getLocalProperty("spark.jobGroup.id")
    return None if run_id is None else str(run_id)


def of_batch(batch_session: SparkSession) -> Binding:
    """The query that is running the current foreachBatch."""
    query_id = batch_session.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        raise UnsupportedQuery("only Spark can call an EpochWriter: pass it to writeStream.foreachBatch(...)")
    jvm: Any = batch_session._jvm
    queries = batch_session._jsparkSession.sharedState().activeStreamingQueries()
    execution = queries.get(jvm.java.util.UUID.fromString(query_id))
    if execution is None:
        raise UnsupportedQuery(f"query {query_id} is not running; is it being stopped?")
    return of_execution(execution)


def location_of(stream: DataStreamWriter) -> str | None:
    """Where a query that has not started will have its checkpoint; None if unknown."""
    options = _field(stream, "extraOptions")
    if options is None:
        return None
    location, name = options.get("checkpointLocation"), options.get("queryName")
    if location.isDefined():
        return str(location.get())
    common = str(stream._spark.conf.get(LOCATION, "") or "")
    return f"{common.rstrip('/')}/{name.get()}" if common and name.isDefined() else None


def is_plain(stream: DataStreamWriter) -> bool:
    """Whether a query that has not started will run in micro-batches, in the usual order, as far as is known.

    `of_execution` refuses the others, once Spark has started them.
    """
    trigger, options = _field(stream, "trigger"), _field(stream, "extraOptions")
    if trigger is None or options is None:
        return False
    asynchronous = options.get("asyncProgressTrackingEnabled")
    name = str(trigger.getClass().getName()).rstrip("$").rpartition(".")[2]
    return name not in REFUSED and not (asynchronous.isDefined() and str(asynchronous.get()).lower() == "true")


def name_of(stream: DataStreamWriter) -> str | None:
    """The queryName of a query that has not started; None if it has none, or if that is unknown."""
    options = _field(stream, "extraOptions")
    name = None if options is None else options.get("queryName")
    return str(name.get()) if name is not None and name.isDefined() else None


def output_mode_of(stream: DataStreamWriter) -> str | None:
    """The output mode of a query that has not started: append, update or complete; None if unknown."""
    mode = _field(stream, "outputMode")
    return None if mode is None else str(mode.toString()).lower()


def _field(stream: DataStreamWriter, name: str) -> Any:
    """What a writer was given for a query that has not started. Spark has no public way to read it."""
    writer: Any = stream._jwrite
    try:
        field = writer.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(writer)
    except Py4JError as fault:
        log.debug("not checked before the start of the query", extra={"field": name, "error": repr(fault)})
        return None


def of_execution(execution: Any) -> Binding:
    """A running query. Refused if Spark runs its steps in another order than the protocol needs."""
    from pyspark.sql import SparkSession

    for kind in (execution.getClass(), execution.trigger().getClass()):
        name = str(kind.getName()).rstrip("$").rpartition(".")[2]
        if name in REFUSED:
            raise UnsupportedQuery(f"this query cannot be exactly once: {REFUSED[name]}. Nothing was written")
    if str(execution.getClass().getName()) != PLAIN:
        raise UnsupportedQuery(f"unknown kind of query: {execution.getClass().getName()}. Nothing was written")
    _check_checkpoint(execution)
    jsession = execution.sparkSession()
    context = SparkSession._instantiatedSession.sparkContext  # type: ignore[union-attr]  # a query runs
    return Binding(
        query_id=str(execution.id().toString()),
        run_id=str(execution.runId().toString()),
        checkpoint=str(execution.resolvedCheckpointRoot()),
        output_mode=str(execution.outputMode().toString()).lower(),
        name=None if execution.name() is None else str(execution.name()),
        session=SparkSession(context, jsession),
    )


def _check_checkpoint(execution: Any) -> None:
    """Refuse a checkpoint that the next start would not use again: its rows would be written twice."""
    root = str(execution.resolvedCheckpointRoot())
    parent, _, last = root.rstrip("/").rpartition("/")
    if _UUID.fullmatch(last.removeprefix(TEMPORARY)) and last.startswith(TEMPORARY):
        raise Refused(
            f"the query has no checkpoint of its own: Spark made a temporary one ({root}), which it removes when "
            "the query ends. Nothing was written. Give the query a permanent one: "
            ".option('checkpointLocation', 'checkpoints/orders')"
        )
    common = str(execution.sparkSession().conf().get(LOCATION, ""))
    if common and execution.name() is None and _UUID.fullmatch(last) and parent.endswith(_path_of(common)):
        raise Refused(
            "the query has neither checkpointLocation nor queryName, so each start gets a new folder in "
            f"{LOCATION} ({common}) and reads its source from the beginning. Nothing was written. Give it "
            ".queryName(...), or a checkpoint of its own: .option('checkpointLocation', 'checkpoints/orders')"
        )


def _path_of(location: str) -> str:
    return urlsplit(location).path.rstrip("/")
