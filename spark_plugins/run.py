"""One run of a query: its coordinator, the thread that settles, and the listener that wakes the thread."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from epochal.sinks.storage.connect import is_connect
from epochal.spark_plugins import causes, exit_code
from epochal.spark_plugins.binding import Binding
from epochal.spark_plugins.jvm import Jvm
from epochal.spark_plugins.lead import Lead
from epochal.spark_plugins.listener import Listener
from epochal.spark_plugins.place import CheckpointPlace
from epochal.spark_plugins.recovery.watching import RecoveryWatch, rows_by_progress
from epochal.spark_plugins.remote.commits import CommitsWatch
from epochal.txn.batches import BatchOutcome
from epochal.txn.errors import EpochalError, FencedOut, NotSettled, SparkGone
from epochal.txn.events import StreamRefused
from epochal.txn.settler import Settler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("epochal")

LONGEST_REASON = 500  # characters
DYING = 2.0  # seconds that a JVM may take to end after it has broken a connection
EVENTS_TIMEOUT = 5000  # milliseconds that the exit of the interpreter waits for Spark's events

_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def run_of(run_id: str) -> Run | None:
    """The open `Run` of this process with Spark's run id, if there is one."""
    return next((run for run in list(_runs) if run.binding.run_id == run_id and not run.is_closed), None)


def run_of_query(query_id: str) -> Run | None:
    """The open `Run` of this process of a query, if there is one."""
    return next((run for run in list(_runs) if run.binding.query_id == query_id and not run.is_closed), None)


class Run:
    """A query's run under one generation."""

    def __init__(
        self,
        binding: Binding,
        place: CheckpointPlace,
        lead: Lead,
        *,
        journal: str | None,
        max_pending: int,
        settle_timeout: float,
        objective: float | None = None,
    ) -> None:
        self.binding = binding
        self._place = place
        self._lead = lead
        self._settle_timeout = settle_timeout
        self._ending = threading.Lock()
        self._closed = False
        self._settled = False
        self._gives_way = self._gave_way = False
        self._conflict: EpochalError | None = None
        self._fault: tuple[Exception, str, int] | None = None  # the last error in a batch
        self._jvm = None if is_connect(binding.session) else Jvm(binding.session)
        self._looking = threading.Lock()
        self._gone: SparkGone | None = None
        self.progress = lead.progress
        self.has_handle = False  # whether a handle of ours raises what ends this run
        self._recover_arguments = place.path if journal is None else f"{place.path} --journal {journal}"
        self._settler: Settler[DataFrame] = Settler(
            lead.coordinator, max_pending=max_pending, on_failure=lambda _: self._stop_query()
        )
        # This start settles what an earlier one in this process left unsettled.
        exit_code.clear(self._recover_arguments)
        # The first batch settles what earlier generations decided; this thread does if no batch comes.
        self._settler.start()
        self._settler.wake()
        me = weakref.ref(self)
        self._listener: Listener | CommitsWatch
        if is_connect(binding.session):
            self._listener = CommitsWatch(place.checkpoint.committed, self._settler.wake)
        else:
            self._listener = Listener(
                binding.session,
                binding.run_id,
                on_progress=self._settler.wake,
                on_end=lambda fault: _retire_soon(me(), fault),
            )
        self._recovery: RecoveryWatch | None = None
        if objective is not None:
            coordinator = lead.coordinator
            session, query_id = binding.session, binding.query_id
            self._recovery = RecoveryWatch(
                place.files,
                place.path,
                objective,
                coordinator.reporter.observers,
                coordinator.lineage,
                rows=lambda: None if is_connect(session) else rows_by_progress(session, query_id),
            )
            self._recovery.start()
        causes.explain_conflicts(binding.run_id, lambda: _conflict_of(me()))
        if not is_connect(binding.session):  # there a query that was stopped ends without an error for its client
            lead.live.jvm = None if self._jvm is None else self._jvm.process
            lead.live.watch = self._look
        _runs.add(self)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def is_at(self, place: CheckpointPlace) -> bool:
        """Whether the query has its checkpoint there."""
        return self._place.path == place.path

    @property
    def generation(self) -> int:
        return self._settler.coordinator.generation

    @property
    def start(self) -> str:
        """The random id of this start."""
        return self._lead.coordinator.begun.record.start

    @property
    def failure(self) -> EpochalError | None:
        """The error that ended the settling between batches, if one did."""
        return self._settler.failure

    def refused(self, fault: EpochalError, epoch: int | None) -> None:
        """Report that the query stops because of an error."""
        coordinator = self._settler.coordinator
        coordinator.reporter.refused(coordinator.lineage, fault, epoch)

    def batch_failed(self, fault: Exception, reason: str, epoch: int) -> None:
        """Remember an error in a batch. It counts if Spark says that the query has failed: it may have been stopped."""
        self._fault = (fault, reason, epoch)

    def conflict(self, text: str) -> EpochalError | None:
        """Our error if Spark says that two queries have written to the checkpoint; None if it says something else."""
        if not causes.is_conflict(text):
            return None
        if self._conflict is None:
            try:
                self._conflict = self._lead.why_superseded() or self._lead.two_drivers()
            except (EpochalError, OSError) as fault:  # the journal cannot be read
                log.debug("not looked for a newer driver", extra={"error": repr(fault)})
                self._conflict = self._lead.two_drivers()
        return self._conflict

    def failed(self, text: str) -> None:
        """Spark says that the query has failed: write why into the live file, unless `refused` has."""
        conflict = self.conflict(text)
        if conflict is not None:
            self.refused(conflict, None)
            return
        fault, reason, epoch = self._fault or (None, one_line(text), None)
        if isinstance(fault, NotSettled):
            return  # it was stopped while a store did not answer
        error = "StreamingQueryException" if fault is None else type(fault).__name__
        coordinator = self._settler.coordinator
        self._lead.live_events(
            StreamRefused(
                lineage=coordinator.lineage,
                stream=coordinator.reporter.observers.stream,
                at=time.time(),
                epoch=epoch,
                error=error,
                reason=reason,
            )
        )

    def spark_gone(self, patience: float = DYING) -> SparkGone | None:
        """The error if Spark's JVM has died before the query has ended. It is reported once."""
        with self._looking:
            if self._gone is None and not self._closed and self._jvm is not None and self._jvm.is_gone(patience):
                self._gone = SparkGone(
                    f"{self._jvm} has ended, and the query with it; was it killed, or out of memory? Nothing is lost. "
                    "End this process, and start the query again"
                )
                self.refused(self._gone, None)
                self._settle_timeout = 0.0  # what needs Spark will not succeed later either
            return self._gone

    def batch(self, epoch: int, frame: DataFrame) -> BatchOutcome:
        """Stage an epoch; in eager mode also commit it."""
        outcome = self._settler.run(epoch, frame)
        self._listener.expect(epoch)
        if self._settler.coordinator.eager:
            self._settler.settle()
        return outcome

    def settle(self, timeout: float | None = None) -> None:
        """Bring every decided epoch to done."""
        if self._settler.failure is not None:
            raise self._settler.failure
        self._settler.settle(self._settle_timeout if timeout is None else timeout)

    def is_active(self) -> bool:
        """Whether Spark still runs the query."""
        return any(q.runId == self.binding.run_id for q in self.binding.session.streams.active)

    def stop_waiting(self) -> None:
        """Make a batch that waits for a store give up, so that the query can stop."""
        self._settler.give_up()  # not stop(): the thread may wait for a batch that ends only with the query

    def end(self, *, settle: bool) -> None:
        """Settle if asked, and close the run: after this it does not touch any file."""
        with self._ending:
            try:
                if settle:
                    self.settle()
                    self._settled = True
            finally:
                self.close()

    def retire(self) -> None:
        """The query has ended: settle its last epoch and close the run."""
        with self._ending:
            if self._closed:
                return
            stream = self._settler.coordinator.reporter.observers.stream
            facts = {"query": self.binding.query_id, "stream": stream}
            try:
                self.settle()
                self._settled = True
            except FencedOut as fault:  # the other driver settles
                log.error("query ended with unsettled epochs: %s", fault, extra=facts)
                if self._gave_way and not self.has_handle:  # Spark's handle says nothing of it
                    exit_code.record_fenced(self._recover_arguments, str(fault))
            except (EpochalError, OSError, Py4JError) as fault:
                log.error("query ended with unsettled epochs: %s", fault, extra=facts)
                exit_code.record_unsettled(self._recover_arguments, str(fault))
            self.close()

    def halt(self) -> None:
        """Stop the query, then retire. A batch that is being staged would block the exit of the interpreter."""
        self.stop_waiting()
        if self.spark_gone(patience=0.0) is None and not is_connect(self.binding.session):
            # With Spark Connect this process ends because the query has, or the server.
            try:
                self._stop_query()
            except (Py4JError, OSError) as fault:
                log.debug("query could not be stopped", extra={"error": repr(fault)})
        self.retire()

    def _look(self) -> None:
        """With each heartbeat: if a newer driver has started, give way. An idle query would notice with its next batch.

        In a thread of its own: to stop a query may take long, and meanwhile the live file shows that this driver runs.
        If the JVM has died, nobody else says that the query has ended: retire.
        """
        if not self._closed and self._gone is None and self.spark_gone(patience=0.0) is not None:
            threading.Thread(target=self.retire, name="epochal-retire", daemon=True).start()
            return
        if not self._gives_way and not self._closed and self._lead.has_newer():
            self._gives_way = True
            threading.Thread(target=self._give_way, name="epochal-give-way", daemon=True).start()
        self.answer()

    def answer(self) -> None:
        """Wait until Spark's JVM answers. One that hangs thus keeps the driver from writing live files."""
        try:
            if self._jvm is not None and not self._closed and self._gone is None:
                self._jvm.answer()
        except (Py4JError, OSError) as fault:  # it is dying, or Spark was stopped
            log.debug("the JVM did not answer", extra={"error": repr(fault)})

    def give_way(self, fault: EpochalError) -> None:
        """Stop the query because another driver goes on with it, or may soon."""
        if not self._closed and self._settler.failure is None:
            self._gave_way = True
            self._settler.fail(fault)

    def _give_way(self) -> None:
        try:
            fault = self._lead.why_superseded()
            if fault is not None:
                self.give_way(fault)
        except (EpochalError, OSError, Py4JError, PySparkException) as failed:
            log.warning("not stopped for a newer driver, which has fenced this one: %s", failed)
        self._gives_way = False

    def _stop_query(self) -> None:
        """Stop the query: rows are lost, or another driver has taken over. An idle query would not notice."""
        query = self.binding.session.streams.get(self.binding.query_id)
        if query is not None and query.runId == self.binding.run_id:
            query.stop()

    def close(self) -> None:
        """Stop the settler and the listener."""
        was_closed, self._closed = self._closed, True
        self._settler.stop()
        if self._recovery is not None:
            self._recovery.stop()
        self._listener.remove()
        _runs.discard(self)
        if not was_closed:
            coordinator = self._settler.coordinator
            coordinator.reporter.ended(coordinator.lineage, settled=self._settled)
            self._lead.live.end()


def _retire_soon(run: Run | None, fault: str | None) -> None:
    """Retire in a new thread: Spark's listener bus is shared and must not wait for a store."""
    if run is not None:
        threading.Thread(target=_retire, args=(run, fault), name="epochal-retire", daemon=True).start()


def _retire(run: Run, fault: str | None) -> None:
    if fault is not None:
        run.failed(fault)
    run.retire()


def _conflict_of(run: Run | None) -> EpochalError | None:
    return None if run is None else run.conflict(causes.CONFLICT)


def one_line(text: str) -> str:
    """The first line of an error, shortened: Spark appends plans and traces."""
    lines = text.strip().splitlines()
    return lines[0].strip()[:LONGEST_REASON] if lines else ""


@atexit.register
def _settle_at_exit() -> None:
    for run in list(_runs):
        run.halt()
    _wait_for_events()
    exit_code.report_at_exit()


def _wait_for_events() -> None:
    """Wait until Spark's listener bus is empty: an event after Python has exited logs a page of Java errors."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:  # stopped, or its JVM has died
        return
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_TIMEOUT)
    except (Py4JError, OSError) as fault:
        log.debug("events left in Spark's listener bus", extra={"error": repr(fault)})
