"""`EpochWriter`: users pass it to foreachBatch, or start a query with it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from epochal.metrics import why_not_served
from epochal.sinks.config import checks
from epochal.sinks.config.declaring import Option, declarations, declared_options
from epochal.sinks.config.options import Faults
from epochal.sinks.config.quantities import parse_duration
from epochal.sinks.config.texts import parse_names, parse_seconds
from epochal.sinks.dead_letters import nested_dead_letters, with_dead_letters
from epochal.sinks.storage.hadoop_errors import chain, in_short
from epochal.spark_plugins import binding as bindings
from epochal.spark_plugins import causes
from epochal.spark_plugins.already_runs import RunningDriver, driver_of, serve_metrics
from epochal.spark_plugins.place import CheckpointPlace
from epochal.spark_plugins.query import EpochQuery
from epochal.spark_plugins.remote import started, starting
from epochal.spark_plugins.remote.query import RemoteEpochQuery
from epochal.spark_plugins.remote.started import RemoteQuery
from epochal.spark_plugins.run import Run, one_line
from epochal.spark_plugins.state_policy import StatePolicy
from epochal.spark_plugins.still_open import StillOpen, still_open
from epochal.spark_plugins.writer_options import check_metrics, check_observers, check_sinks, check_tokens
from epochal.spark_plugins.writer_runs import WriterRuns
from epochal.spark_plugins.writer_settings import WriterSettings
from epochal.txn.choices import Choices, tokens
from epochal.txn.errors import EpochalError, OptionError, Refused
from epochal.txn.events import Observer
from epochal.txn.files import Files
from epochal.txn.participant import Participant
from epochal.txn.reporting import stream_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("epochal")

Commit = Literal["checkpoint", "eager"]


class EpochWriter:
    """Writes each epoch of a stream to all of its sinks, exactly once, together.

    Use it as a foreachBatch function, ``stream.writeStream.foreachBatch(writer)``, or start the
    query with it, ``writer.start(stream.writeStream.option("checkpointLocation", ...))``, which
    also settles the last epoch when the query ends.
    """

    @declared_options
    def __init__(
        self,
        *sinks: Participant[DataFrame],
        commit: Annotated[
            Commit,
            Option("show an epoch when Spark's checkpoint of it is complete, or as soon as every sink has staged it"),
        ] = "checkpoint",
        journal: Annotated[
            str | None,
            Option(
                "where the journal is kept; also on [an object store](objects.md)",
                expects="a folder or URI",
                shown_default="in the checkpoint",
            ),
        ] = None,
        state: Annotated[
            StatePolicy | None,
            Option(
                "when what sinks keep over epochs is folded: a recovery time, or knobs, see [state](state.md#policy)",
                expects="a StatePolicy, such as StatePolicy(recovery='500 ms')",
            ),
        ] = None,
        recovery_objective: Annotated[
            float | str | timedelta | None,
            Option(
                'warn when a crash now would take longer to recover from: seconds, or `"10 s"`, see '
                "[recovery](recovery.md#a-recovery-objective)",
                check=checks.parsed(parse_duration),
            ),
        ] = None,
        max_pending: Annotated[
            int,
            Option(
                "how many epochs may wait for a store that is down before the stream is held",
                check=checks.whole(1, None, "a number of epochs, 1 or more"),
            ),
        ] = 1,
        settle_timeout: Annotated[
            float,
            Option(
                "how many seconds the end of a query waits for such a store",
                check=checks.seconds,
                parse=parse_seconds,
            ),
        ] = 60.0,
        takeover_timeout: Annotated[
            float,
            Option(
                "how many seconds a start waits for [another driver](#two-drivers-run-the-same-checkpoint) of the "
                "stream to end",
                check=checks.seconds,
                parse=parse_seconds,
            ),
        ] = 60.0,
        adopt: Annotated[
            str | Collection[str] | None,
            Option(
                "answers a [refusal](#refusals) with what it named: go on, or take the place of another stream",
                check=check_tokens,
                parse=parse_names,
                shown_type="text or list of texts",
            ),
        ] = None,
        new: Annotated[
            str | Collection[str] | None,
            Option(
                "the same: write as a new stream",
                check=check_tokens,
                parse=parse_names,
                shown_type="text or list of texts",
            ),
        ] = None,
        cache: Annotated[
            bool | None,
            Option(
                "keep an epoch's rows while several sinks read them",
                shown_default="`True` with several sinks",
            ),
        ] = None,
        observers: Annotated[
            Sequence[Observer],
            Option(
                "functions that are called with each [event](observability.md#events)",
                check=check_observers,
                setting=False,
                shown_type="functions",
                shown_default="none",
            ),
        ] = (),
        metrics: Annotated[
            str | None,
            Option(
                "where [metrics](observability.md#metrics) go: `prometheus`, `prometheus://127.0.0.1:9464` or "
                "`opentelemetry`",
                check=check_metrics,
            ),
        ] = None,
    ) -> None:
        faults = Faults("EpochWriter")
        sinks = with_dead_letters(sinks)
        check_sinks(sinks, faults)
        for sink, letters in nested_dead_letters(sinks):
            faults.add(
                f"{letters!r} gets what {sink!r} rejects, and has dead_letters= of its own, which would stay empty; "
                "dead letters hold any row, so remove those"
            )
        given = {
            "commit": commit,
            "journal": journal,
            "state": state,
            "recovery_objective": recovery_objective,
            "max_pending": max_pending,
            "settle_timeout": settle_timeout,
            "takeover_timeout": takeover_timeout,
            "adopt": adopt,
            "new": new,
            "cache": cache,
            "observers": observers,
            "metrics": metrics,
        }
        for name, declaration in declarations(EpochWriter).items():
            declaration.checked(given[name], faults)
        faults.done()
        self._settings = WriterSettings(
            sinks=tuple(sinks),
            eager=commit == "eager",
            journal=journal,
            state=None if state is None else state.policy,
            recovery_objective=None if recovery_objective is None else parse_duration(recovery_objective),
            max_pending=max_pending,
            settle_timeout=float(settle_timeout),
            takeover_timeout=float(takeover_timeout),
            choices=Choices(tokens(adopt), tokens(new)),
            cache=len(sinks) > 1 if cache is None else cache,
            observers=tuple(observers),
            metrics=metrics,
        )
        self._runs = WriterRuns(self._settings)

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the process of a Spark Connect server: the options, and which query it is."""
        return {name: value for name, value in vars(self).items() if name != "_runs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._runs = WriterRuns(self._settings)

    def __repr__(self) -> str:
        commit = "eager" if self._settings.eager else "checkpoint"
        return f"EpochWriter({', '.join(map(repr, self.sinks))}, {commit=!r})"

    @property
    def sinks(self) -> tuple[Participant[DataFrame], ...]:
        return self._settings.sinks

    @property
    def journal(self) -> str | None:
        """Where the journal is kept, if that is not in the checkpoint."""
        return self._settings.journal

    @property
    def observers(self) -> tuple[Observer, ...]:
        return self._settings.observers

    @property
    def stream(self) -> str | None:
        """Its name in Spark's settings, if it was made from them."""
        return self._settings.stream

    @stream.setter
    def stream(self, name: str | None) -> None:
        self._set(stream=name)

    @staticmethod
    def from_conf(spark: SparkSession, stream: str) -> EpochWriter:
        """The writer that Spark's settings describe under ``spark.epochal.<stream>``."""
        from epochal.spark_plugins.conf import writer_from_conf

        return writer_from_conf(spark, stream)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Write one micro-batch. Called by Spark."""
        runs = self._runs
        try:
            runs.write(frame, epoch)
        except EpochalError as fault:
            runs.failure = fault
            if hasattr(frame.sparkSession, "_jsparkSession"):  # Spark Connect is refused, and has no runs here
                causes.record(bindings.run_of_batch(frame.sparkSession), fault)
            runs.report_refused(fault, epoch)
            runs.note_failure(fault, str(fault), epoch)
            log.debug("epoch refused", exc_info=fault)
            # Spark repeats the trace of what is raised here several times: keep it short.
            raise fault.with_traceback(None) from fault.__cause__
        except (OSError, Py4JError) as fault:
            # Spark logs a page of Python and Java traces; this is the line to look for.
            facts = {"epoch": epoch, "stream": self.stream}
            log.error("epoch not staged; the next start stages it again: %s", in_short(fault), extra=facts)
            runs.note_failure(fault, in_short(fault), epoch)
            raise
        except Exception as fault:
            runs.note_failure(fault, one_line(str(fault)), epoch)
            raise

    def start(self, stream: DataStreamWriter) -> EpochQuery:
        """Start the query. The handle that is returned settles when the query ends.

        Wrong columns of the frame, or an unsuitable checkpoint, are refused before the query starts. If another driver
        runs the query, this one takes over: it waits for the other to end, `takeover_timeout` seconds at most.
        """
        return self.start_instead(stream, None)

    def start_instead(self, stream: DataStreamWriter, instead_of: str | None) -> EpochQuery:
        """As `start`. With the id of a start that was given up: Overtaken unless that one is still the newest.

        Then nobody is waited for.
        """
        try:
            return self._start_instead(stream, instead_of)
        except EpochalError as fault:
            log.debug("start refused", exc_info=fault)
            cause = fault.__cause__
            if cause is None or isinstance(cause, EpochalError):  # one of our own says the same once more
                raise fault.with_traceback(None) from None
            raise fault.with_traceback(None) from cause.with_traceback(None)

    def _start_instead(self, stream: DataStreamWriter, instead_of: str | None) -> EpochQuery:
        if not hasattr(stream, "foreachBatch"):
            kind = type(stream).__name__
            raise OptionError("EpochWriter.start", [f"takes frame.writeStream with its options, not a {kind}"])
        if started.is_remote(stream):
            return self._start_remote(stream)
        runs, location = self._runs, bindings.location_of(stream)
        place = None if location is None else CheckpointPlace(location, stream._spark)
        try:
            # First: a start that fails must not stop a driver that runs.
            self._serve_metrics(place, must=instead_of is None)
            runs.check_before(stream, place)
        except EpochalError as fault:
            runs.report_refused(fault, None, stream_name(location) if location else "")
            raise
        lead = runs.claim_before(stream, place, instead_of)
        try:
            if lead is not None:
                lead.wait(self._settings.takeover_timeout)
            query = _started(stream.foreachBatch(self))
        except BaseException as fault:
            runs.drop_lead(fault)
            raise
        handle = EpochQuery(query, self)
        try:
            # Not at the first batch: there may be epochs to settle and no new data.
            handle.run = runs.started(str(query.runId), query._jsq.streamingQuery(), stream._df, place)
        except EpochalError as fault:
            failure = runs.failure = runs.failure or fault
            runs.report_refused(failure, None)
            query.stop()
            runs.drop_lead(failure)
            raise failure from None
        except BaseException as fault:
            query.stop()  # the caller gets no handle to stop it
            runs.drop_lead(fault)
            raise
        return handle

    def _serve_metrics(self, place: CheckpointPlace | None, *, must: bool) -> None:
        """Serve metrics, if there are any. A driver that was given up may hang, and still have their address."""
        try:
            serve_metrics(self._settings.metrics, place, self._settings.journal)
        except Refused as fault:
            if must:
                raise
            log.warning("metrics are not served: %s", fault)
            self._set(metrics=None)

    def _start_remote(self, stream: Any) -> EpochQuery:
        query, settling = starting.start(
            stream,
            sinks=self.sinks,
            observers=self._settings.observers,
            journal=self._settings.journal,
            choices=self._settings.choices,
            settle_timeout=self._settings.settle_timeout,
            sent=self._sent,
        )
        return RemoteEpochQuery(query, self, settling)

    def _sent(self, remote: RemoteQuery) -> EpochWriter:
        """What goes to a Spark Connect server to write the batches of a query."""
        travelling = copy.copy(self)
        travelling._set(remote=remote)
        return travelling

    def settle(self, timeout: float | None = None) -> None:
        """Make every epoch visible that Spark has checkpointed."""
        if self._runs.run is not None:
            self._runs.run.settle(timeout)

    def stop_waiting(self) -> None:
        """Make a batch that waits for a store give up."""
        if self._runs.run is not None:
            self._runs.run.stop_waiting()

    def ended(self, fault: StreamingQueryException | None, run: Run | None) -> None:
        """A query has ended: settle, and raise the error of this writer that ended it, if there is one."""
        self._runs.ended(fault, run)

    def check_before(self, stream: DataStreamWriter, place: CheckpointPlace) -> None:
        """Refuse what `start` would refuse. Writes nothing and claims nothing."""
        self._runs.check_before(stream, place)

    def check_place(self, files: Files, path: str) -> None:
        """Refuse a checkpoint, existing or new, that does not fit the sinks. Writes nothing."""
        self._runs.check_place(files, path)

    def open_metrics(self, location: str | None, spark: SparkSession) -> None:
        """Serve metrics from now on, if there are any. Refused if another process uses their address."""
        place = None if location is None else CheckpointPlace(location, spark)
        serve_metrics(self._settings.metrics, place, self._settings.journal)

    def running_driver(self, location: str, spark: SparkSession) -> RunningDriver | None:
        """The driver that runs the stream of a checkpoint in another process; None if none is known to be alive."""
        return driver_of(CheckpointPlace(location, spark), self._settings.journal)

    def metrics_fault(self) -> str | None:
        """Why the endpoint for metrics could not listen now; None if it could, or if there is none."""
        return None if self._settings.metrics is None else why_not_served(self._settings.metrics)

    def still_open(self, location: str, spark: SparkSession) -> StillOpen | None:
        """The rows of a checkpoint's stream that are committed and wait in open parts; None if there are none."""
        return still_open(CheckpointPlace(location, spark).path, self._settings.journal, self.sinks)

    def _set(self, **changes: Any) -> None:
        self._settings = self._runs.settings = replace(self._settings, **changes)


def _started(stream: DataStreamWriter) -> StreamingQuery:
    try:
        return stream.start()
    except Py4JJavaError as fault:
        if not any(kind.endswith(("IOException", "AccessControlException")) for kind, _ in chain(fault)):
            raise
        raise Refused(
            f"Spark could not start the query: {in_short(fault)}. Nothing was written. Can this user write where "
            "checkpointLocation is?"
        ) from fault
