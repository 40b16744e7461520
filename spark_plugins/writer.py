"""`EpochWriter`: users pass it to foreachBatch, or start a query with it."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from epochal.metrics import observer_of
from epochal.sinks.config import checks
from epochal.sinks.config.declaring import Option, declarations, declared_options
from epochal.sinks.config.options import Faults
from epochal.sinks.config.texts import parse_names, parse_seconds
from epochal.sinks.dead_letters import nested_dead_letters, with_dead_letters
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.hadoop_errors import chain, in_short
from epochal.spark_plugins import before_start, causes
from epochal.spark_plugins import binding as bindings
from epochal.spark_plugins.already_runs import RunningDriver, driver_at
from epochal.spark_plugins.checkpoint import NewCheckpoint, SparkCheckpoint
from epochal.spark_plugins.lead import Lead, coordinator_of
from epochal.spark_plugins.query import EpochQuery
from epochal.spark_plugins.remote import batches, started, starting
from epochal.spark_plugins.remote.query import RemoteEpochQuery
from epochal.spark_plugins.remote.started import RemoteQuery
from epochal.spark_plugins.run import Run, one_line, run_of, run_of_query
from epochal.spark_plugins.state_policy import StatePolicy
from epochal.spark_plugins.writer_options import check_metrics, check_observers, check_sinks, check_tokens
from epochal.txn.batches import BatchOutcome
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import EpochalError, NotSettled, OptionError, Refused
from epochal.txn.events import Observer
from epochal.txn.files import Files, join
from epochal.txn.participant import Participant
from epochal.txn.reporting import reporter, stream_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("epochal")

Commit = Literal["checkpoint", "eager"]
# What does not hold in another process.
OF_RUNS = ("_lock", "_run", "_lead", "_failure", "_written", "_checked", "_knows_mode")


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
            Option("where the journal is kept", expects="a folder or URI", shown_default="in the checkpoint"),
        ] = None,
        state: Annotated[
            StatePolicy | None,
            Option(
                "when what sinks keep over epochs is folded: a recovery time, or knobs, see [state](state.md#policy)",
                expects="a StatePolicy, such as StatePolicy(recovery='500 ms')",
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
        self._sinks = sinks
        self._eager = commit == "eager"
        self._journal = journal
        self._state = None if state is None else state.policy
        self._max_pending = max_pending
        self._settle_timeout = float(settle_timeout)
        self._takeover_timeout = float(takeover_timeout)
        self._choices = Choices(tokens(adopt), tokens(new))
        self._cache = len(sinks) > 1 if cache is None else cache
        self._observers = tuple(observers)
        self._metrics = metrics
        self.stream: str | None = None  # its name in Spark's settings, if it was made from them
        self._remote: RemoteQuery | None = None  # the query, in the process of a Spark Connect server
        self._forget()

    def _forget(self) -> None:
        """As if no query had been started yet."""
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._lead: Lead | None = None  # a generation that was claimed for a query that is about to start
        self._failure: EpochalError | None = None
        self._written: tuple[str, int] | None = None  # the last batch: its run and its epoch
        self._checked = ""  # the run whose frame was checked before it started
        self._knows_mode = False  # whether its output mode was checked too

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the process of a Spark Connect server: the options, and which query it is."""
        return {name: value for name, value in vars(self).items() if name not in OF_RUNS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def __repr__(self) -> str:
        return f"EpochWriter({', '.join(map(repr, self._sinks))}, commit={'eager' if self._eager else 'checkpoint'!r})"

    @property
    def sinks(self) -> tuple[Participant[DataFrame], ...]:
        return self._sinks

    @staticmethod
    def from_conf(spark: SparkSession, stream: str) -> EpochWriter:
        """The writer that Spark's settings describe under ``spark.epochal.<stream>``."""
        from epochal.spark_plugins.conf import writer_from_conf

        return writer_from_conf(spark, stream)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Write one micro-batch. Called by Spark."""
        try:
            run = self._run_of_batch(frame, epoch)
            batch = (run.binding.run_id, epoch)
            if batch == self._written:
                raise Refused(
                    f"epoch {epoch} was passed to this writer twice, and the rows of the second frame would reach no "
                    "sink. The epoch is not committed. Call the writer once for each batch: union the frames, or give "
                    "the writer several sinks"
                )
            if self._write(run, frame, epoch) is BatchOutcome.SKIPPED:
                # The frame must still be executed: a stateful query that skips a batch loses its state.
                frame.write.format("noop").mode("overwrite").save()
            self._written = batch
        except EpochalError as fault:
            self._failure = fault
            if hasattr(frame.sparkSession, "_jsparkSession"):  # Spark Connect is refused, and has no runs here
                causes.record(bindings.run_of_batch(frame.sparkSession), fault)
            self._report_refused(fault, epoch)
            self._note_failure(fault, str(fault), epoch)
            log.debug("epoch refused", exc_info=fault)
            # Spark repeats the trace of what is raised here several times: keep it short.
            raise fault.with_traceback(None) from fault.__cause__
        except (OSError, Py4JError) as fault:
            # Spark logs a page of Python and Java traces; this is the line to look for.
            log.error("epoch not staged; the next start stages it again: %s", in_short(fault), extra={"epoch": epoch})
            self._note_failure(fault, in_short(fault), epoch)
            raise
        except Exception as fault:
            self._note_failure(fault, one_line(str(fault)), epoch)
            raise

    def start(self, stream: DataStreamWriter) -> EpochQuery:
        """Start the query. The handle that is returned settles when the query ends.

        Wrong columns of the frame, or an unsuitable checkpoint, are refused before the query starts. If another driver
        runs the query, this one takes over: it waits for the other to end, `takeover_timeout` seconds at most.
        """
        if not hasattr(stream, "foreachBatch"):
            kind = type(stream).__name__
            raise OptionError("EpochWriter.start", [f"takes frame.writeStream with its options, not a {kind}"])
        if started.is_remote(stream):
            return self._start_remote(stream)
        try:
            location = bindings.location_of(stream)
            self.open_metrics(location, stream._spark)  # first: a start that fails must not stop a driver that runs
            self._check_before(stream)
        except EpochalError as fault:
            location = bindings.location_of(stream)
            self._report_refused(fault, None, stream_name(location) if location else "")
            raise
        lead = self._claim_before(stream)
        try:
            if lead is not None:
                lead.wait(self._takeover_timeout)
            query = _started(stream.foreachBatch(self))
        except BaseException as fault:
            self._drop_lead(fault)
            raise
        handle = EpochQuery(query, self)
        self._checked = str(query.runId)
        try:
            # Not at the first batch: there may be epochs to settle and no new data.
            handle.run = self._run_of(bindings.of_execution(query._jsq.streamingQuery()))
            handle.run.has_handle = True
        except EpochalError as fault:
            self._failure = self._failure or fault
            self._report_refused(self._failure, None)
            query.stop()
            self._drop_lead(self._failure)
            raise self._failure from None
        except BaseException as fault:
            query.stop()  # the caller gets no handle to stop it
            self._drop_lead(fault)
            raise
        return handle

    def _start_remote(self, stream: Any) -> EpochQuery:
        query, settling = starting.start(
            stream,
            sinks=self._sinks,
            observers=self._observers,
            journal=self._journal,
            choices=self._choices,
            settle_timeout=self._settle_timeout,
            sent=self._sent,
        )
        return RemoteEpochQuery(query, self, settling)

    def _sent(self, remote: RemoteQuery) -> EpochWriter:
        """What goes to a Spark Connect server to write the batches of a query."""
        travelling = copy.copy(self)
        travelling._remote = remote
        return travelling

    def settle(self, timeout: float | None = None) -> None:
        """Make every epoch visible that Spark has checkpointed."""
        if self._run is not None:
            self._run.settle(timeout)

    def stop_waiting(self) -> None:
        """Make a batch that waits for a store give up."""
        if self._run is not None:
            self._run.stop_waiting()

    def ended(self, fault: StreamingQueryException | None, run: Run | None) -> None:
        """A query has ended: settle, and raise the error of this writer that ended it, if there is one."""
        failure: EpochalError | None = None
        is_stopped_by_us = False
        if run is self._run:  # else another query uses this writer now
            failure, self._failure = self._failure, None
            self._run = None
        if run is not None:
            if fault is not None:
                run.failed(str(fault))
            # A batch that gave up because the query was stopped left an epoch to settle.
            run.end(settle=failure is None or isinstance(failure, NotSettled))
            if failure is None and fault is not None:
                failure = run.conflict(str(fault))
            is_stopped_by_us = run.failure is not None
        if failure is not None and (fault is not None or is_stopped_by_us):
            raise failure from fault

    def _report_refused(self, fault: EpochalError, epoch: int | None, stream: str = "") -> None:
        """Report an error that ends the query, if the run that it ended has not done so."""
        if self._run is not None and not self._run.is_closed:
            self._run.refused(fault, epoch)
        else:
            reporter(self._observers, stream=self.stream or stream).refused("", fault, epoch)

    def _note_failure(self, fault: Exception, reason: str, epoch: int) -> None:
        if self._run is not None:
            self._run.batch_failed(fault, reason, epoch)

    def _write(self, run: Run, frame: DataFrame, epoch: int) -> BatchOutcome:
        if not self._cache:
            return run.batch(epoch, frame)
        frame.persist()
        try:
            outcome = run.batch(epoch, frame)
        except BaseException:
            if is_connect(frame.sparkSession):
                # The server may be dead, and its client would try for ten minutes; this process ends before.
                threading.Thread(target=frame.unpersist, daemon=True).start()
            else:
                frame.unpersist()
            raise
        frame.unpersist()
        return outcome

    def _run_of_batch(self, frame: DataFrame, epoch: int) -> Run:
        session = frame.sparkSession
        run = self._run
        if is_connect(session):
            if run is not None:
                return run  # the process lives as long as the query
            binding = batches.bound(session, self._remote, epoch)
            before_start.refuse(before_start.faults(self._sinks, frame=frame))
            run = self._run_of(binding)
            batches.settle_when_stopped(run)
            return run
        if run is not None and run.binding.run_id == bindings.run_of_batch(session):
            return run
        binding = bindings.of_batch(session)
        if self._checked != binding.run_id:
            # Before this run writes anything, even if the sinks know the stream.
            before_start.refuse(before_start.faults(self._sinks, frame=frame))
        return self._run_of(binding)

    def _check_before(self, stream: DataStreamWriter) -> None:
        """Refuse what the first batch would refuse, as far as it can be told before the query starts."""
        mode = bindings.output_mode_of(stream)
        self._knows_mode = mode is not None
        found = before_start.faults(self._sinks, frame=stream._df, mode=mode)
        before_start.refuse([*found, *before_start.refusals([lambda: self._check_checkpoint(stream)])])

    def open_metrics(self, location: str | None, spark: SparkSession) -> None:
        """Serve metrics from now on, if there are any. Refused if another process uses their address.

        That process is most often an earlier driver of the same stream: then the error names it.
        """
        if self._metrics is None:
            return
        try:
            observer_of(self._metrics)
        except Refused as fault:
            driver = None if location is None else self.running_driver(location, spark)
            if driver is None:
                raise
            raise Refused(
                f"{fault}. This very stream runs already: {driver}. It goes on. To replace it, stop it first, or start "
                "this one with metrics at another address: it takes over then"
            ) from None

    def running_driver(self, location: str, spark: SparkSession) -> RunningDriver | None:
        """The driver that runs the stream of a checkpoint in another process; None if none is known to be alive."""
        files, path = resolve(location, spark)
        return None if files.length(join(path, "metadata")) is None else driver_at(path, self._journal)

    def _claim_before(self, stream: DataStreamWriter) -> Lead | None:
        """Claim a generation before Spark starts the query; None where only a started query tells what it is.

        A query that another writer of this process runs is left alone: Spark ends it, or refuses this start.
        """
        location = bindings.location_of(stream)
        if location is None or not bindings.is_plain(stream):
            return None
        files, path = resolve(location, stream._spark)
        checkpoint = SparkCheckpoint(files, path)
        if files.length(join(path, "metadata")) is None or run_of_query(checkpoint.query_id()) is not None:
            return None
        self._lead = self._lead_of(checkpoint, bindings.name_of(stream), waits=True)
        return self._lead

    def _drop_lead(self, fault: BaseException) -> None:
        """Give up a generation whose query has not started."""
        lead, self._lead = self._lead, None
        if lead is not None:
            lead.abandon(fault)

    def _lead_of(self, checkpoint: SparkCheckpoint, name: str | None, *, waits: bool = False) -> Lead:
        return Lead(
            checkpoint,
            self._sinks,
            eager=self._eager,
            journal=self._journal,
            choices=self._choices,
            observers=self._observers if self._metrics is None else (observer_of(self._metrics), *self._observers),
            name=self.stream or name,
            state=self._state,
            waits=waits,
        )

    def _coordinator(self, files: Files, path: str) -> Coordinator[DataFrame]:
        """The coordinator of a query on an existing or a new checkpoint, for checks."""
        is_new = files.length(join(path, "metadata")) is None
        checkpoint = NewCheckpoint(files, path) if is_new else SparkCheckpoint(files, path)
        return coordinator_of(
            checkpoint,
            self._sinks,
            eager=self._eager,
            journal=self._journal,
            choices=self._choices,
            state=self._state,
        )

    def _check_checkpoint(self, stream: DataStreamWriter) -> None:
        """Refuse a checkpoint that does not fit the sinks before Spark plans an epoch.

        A source records what it will read before the epoch is planned. If the first batch refused instead, that record
        would have changed what the epoch reads, and the answer to the refusal would no longer fit.
        """
        location = bindings.location_of(stream)
        if location is None:
            return
        run = self._run
        files, path = resolve(location, stream._spark)
        if run is not None and run.is_active() and resolve(run.binding.checkpoint, stream._spark)[1] != path:
            raise _busy(run)  # what its sinks hold is of that query
        self.check_place(files, path)

    def check_place(self, files: Files, path: str) -> None:
        """Refuse a checkpoint, existing or new, that does not fit the sinks. Writes nothing."""
        inside = before_start.misplaced(self._sinks, path)
        before_start.refuse([*inside, *before_start.refusals([lambda: self._coordinator(files, path).check()])])

    def _run_of(self, binding: bindings.Binding) -> Run:
        """The current run, or a new generation for a new start of the query."""
        with self._lock:
            run = self._run
            if run is not None and run.binding.run_id == binding.run_id:
                return run
            if run is not None and run.binding.query_id != binding.query_id and run.is_active():
                raise _busy(run)
            if run is not None:
                run.close()
            if run_of(binding.run_id) is not None:
                raise Refused(
                    f"another EpochWriter already writes this query ({binding.query_id}): each would take the epochs "
                    "of the other for its own, and one of them would show nothing. This one wrote nothing. "
                    "Put all sinks into one EpochWriter"
                )
            self._failure = None
            was_checked = self._checked == binding.run_id
            if not (was_checked and self._knows_mode):
                before_start.refuse(before_start.faults(self._sinks, mode=binding.output_mode))
            files, path = resolve(binding.checkpoint, binding.session)
            if not was_checked:
                before_start.refuse(before_start.misplaced(self._sinks, path))
            lead = self._lead
            if lead is None or (lead.query, lead.checkpoint) != (binding.query_id, path):
                lead = self._lead_of(SparkCheckpoint(files, path), binding.name)
            else:
                self._lead = None
            self._run = Run(
                binding,
                lead,
                journal=self._journal,
                max_pending=self._max_pending,
                settle_timeout=self._settle_timeout,
            )
            return self._run


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


def _busy(run: Run) -> Refused:
    return Refused(f"this writer already runs query {run.binding.query_id}; give each query an EpochWriter of its own")
