"""The runs of one writer: which query it writes now, and the generation that it has claimed for the next one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from epochal.sinks.storage.connect import is_connect
from epochal.spark_plugins import before_start, stateful
from epochal.spark_plugins import binding as bindings
from epochal.spark_plugins.lead import Lead
from epochal.spark_plugins.place import CheckpointPlace, checkpoint_at
from epochal.spark_plugins.remote import batches
from epochal.spark_plugins.run import Run, run_of, run_of_query
from epochal.spark_plugins.writer_settings import WriterSettings
from epochal.txn.batches import BatchOutcome
from epochal.txn.errors import EpochalError, NotSettled, Refused
from epochal.txn.files import Files
from epochal.txn.reporting import reporter

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class WriterRuns:
    """What a writer does in this process. Another process, such as a Connect server's, begins without any of it."""

    def __init__(self, settings: WriterSettings) -> None:
        self.settings = settings
        self.failure: EpochalError | None = None  # what ended the query
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._lead: Lead | None = None  # a generation that was claimed for a query that is about to start
        self._written: tuple[str, int] | None = None  # the last batch: its run and its epoch
        self._checked = ""  # the run whose frame was checked before it started
        self._knows_mode = False  # whether its output mode was checked too

    @property
    def run(self) -> Run | None:
        """The current run; None before the first and after the last."""
        return self._run

    def check_before(self, stream: DataStreamWriter, place: CheckpointPlace | None) -> None:
        """Refuse what the first batch would refuse, as far as it is known before the query starts."""
        mode = bindings.output_mode_of(stream)
        self._knows_mode = mode is not None
        found = before_start.faults(self.settings.sinks, frame=stream._df, mode=mode)
        checks = [lambda: self._check_checkpoint(place), lambda: _check_operators(stream, place)]
        before_start.refuse([*found, *before_start.refusals(checks)])

    def check_place(self, files: Files, path: str) -> None:
        """Refuse a checkpoint, existing or new, that does not fit the sinks. Writes nothing."""
        coordinators = self.settings.coordinators
        inside = before_start.misplaced(self.settings.sinks, path)
        fits = before_start.refusals([lambda: coordinators.of(checkpoint_at(files, path)).check()])
        before_start.refuse([*inside, *fits])

    def claim_before(
        self, stream: DataStreamWriter, place: CheckpointPlace | None, instead_of: str | None
    ) -> Lead | None:
        """Claim a generation before Spark starts the query; None where only a started query tells what it is.

        With `instead_of`, the id of a start that was given up, nobody is waited for.

        A query that another writer of this process runs is left alone: Spark ends it, or refuses this start.
        """
        if place is None or not bindings.is_plain(stream) or place.is_new:
            return None
        if run_of_query(place.checkpoint.query_id()) is not None:
            return None
        name = bindings.name_of(stream)
        self._lead = self._lead_of(place, name, stream._df, waits=instead_of is None, instead_of=instead_of)
        return self._lead

    def drop_lead(self, fault: BaseException) -> None:
        """Give up a generation whose query has not started."""
        lead, self._lead = self._lead, None
        if lead is not None:
            lead.abandon(fault)

    def started(self, run_id: str, execution: Any, frame: DataFrame, place: CheckpointPlace | None) -> Run:
        """The run of a query that Spark has just started. Its frame was checked before."""
        self._checked = run_id
        run = self.of(bindings.of_execution(execution), frame, place)
        run.has_handle = True
        return run

    def of(self, binding: bindings.Binding, frame: DataFrame, place: CheckpointPlace | None = None) -> Run:
        """The current run, or a new generation for a new start of the query that writes frames like this one.

        `place` is that of the start, if known.
        """
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
            self.failure = None
            was_checked = self._checked == binding.run_id
            if not (was_checked and self._knows_mode):
                before_start.refuse(before_start.faults(self.settings.sinks, mode=binding.output_mode))
            if place is None or not place.is_at(binding.checkpoint):
                place = CheckpointPlace(binding.checkpoint, binding.session)
            if not was_checked:
                before_start.refuse(before_start.misplaced(self.settings.sinks, place.path))
            lead = self._lead
            if lead is None or (lead.query, lead.checkpoint) != (binding.query_id, place.path):
                lead = self._lead_of(place, binding.name, frame)
            else:
                self._lead = None
            self._run = Run(
                binding,
                place,
                lead,
                journal=self.settings.journal,
                max_pending=self.settings.max_pending,
                settle_timeout=self.settings.settle_timeout,
                objective=self.settings.recovery_objective,
            )
            return self._run

    def write(self, frame: DataFrame, epoch: int) -> None:
        """Write one micro-batch."""
        run = self._run_of_batch(frame, epoch)
        batch = (run.binding.run_id, epoch)
        if batch == self._written:
            raise Refused(
                f"epoch {epoch} was passed to this writer twice, and the rows of the second frame would reach no "
                "sink. The epoch is not committed. Call the writer once for each batch: union the frames, or give "
                "the writer several sinks"
            )
        if self._batch(run, frame, epoch) is BatchOutcome.SKIPPED:
            # The frame must still be executed: a stateful query that skips a batch loses its state.
            frame.write.format("noop").mode("overwrite").save()
        self._written = batch

    def ended(self, fault: StreamingQueryException | None, run: Run | None) -> None:
        """A query has ended: settle, and raise the error of this writer that ended it, if there is one."""
        failure: EpochalError | None = None
        is_stopped_by_us = False
        if run is self._run:  # else another query uses this writer now
            failure, self.failure = self.failure, None
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

    def report_refused(self, fault: EpochalError, epoch: int | None, stream: str = "") -> None:
        """Report an error that ends the query, if the run that it ended has not done so."""
        if self._run is not None and not self._run.is_closed:
            self._run.refused(fault, epoch)
        else:
            reporter(self.settings.observers, stream=self.settings.stream or stream).refused("", fault, epoch)

    def note_failure(self, fault: Exception, reason: str, epoch: int) -> None:
        """Remember an error in a batch."""
        if self._run is not None:
            self._run.batch_failed(fault, reason, epoch)

    def _batch(self, run: Run, frame: DataFrame, epoch: int) -> BatchOutcome:
        if not self.settings.cache:
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
        session, run, sinks = frame.sparkSession, self._run, self.settings.sinks
        if is_connect(session):
            if run is not None:
                return run  # the process lives as long as the query
            binding = batches.bound(session, self.settings.remote, epoch)
            before_start.refuse(before_start.faults(sinks, frame=frame))
            run = self.of(binding, frame)
            batches.settle_when_stopped(run)
            return run
        if run is not None and run.binding.run_id == bindings.run_of_batch(session):
            return run
        binding = bindings.of_batch(session)
        if self._checked != binding.run_id:
            # Before this run writes anything, even if the sinks know the stream.
            before_start.refuse(before_start.faults(sinks, frame=frame))
        return self.of(binding, frame)

    def _lead_of(
        self,
        place: CheckpointPlace,
        name: str | None,
        frame: DataFrame,
        *,
        waits: bool = False,
        instead_of: str | None = None,
    ) -> Lead:
        settings = self.settings
        return Lead(
            settings.coordinators,
            place.checkpoint,
            observers=settings.all_observers(),
            name=settings.stream or name,
            frame=frame,
            waits=waits,
            instead_of=instead_of,
        )

    def _check_checkpoint(self, place: CheckpointPlace | None) -> None:
        """Refuse a checkpoint that does not fit the sinks before Spark plans an epoch.

        A source records what it will read before the epoch is planned. If the first batch refused instead, that record
        would have changed what the epoch reads, and the answer to the refusal would no longer fit.
        """
        if place is None:
            return
        run = self._run
        if run is not None and run.is_active() and not run.is_at(place):
            raise _busy(run)  # what its sinks hold is of that query
        self.check_place(place.files, place.path)


def _check_operators(stream: DataStreamWriter, place: CheckpointPlace | None) -> None:
    """Refuse operators of the user's own that lack what Spark would miss in the first epoch."""
    if place is not None and stateful.has_operators(stream._df):
        before_start.refuse(stateful.faults(stream._spark, place.checkpoint.settings()))


def _busy(run: Run) -> Refused:
    return Refused(f"this writer already runs query {run.binding.query_id}; give each query an EpochWriter of its own")
