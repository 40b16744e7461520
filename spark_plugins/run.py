"""One run of a query: its coordinator, the thread that settles, and the listener that wakes the thread."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext

from epochal._version import __version__
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins import exit_code
from epochal.spark_plugins.binding import Binding
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.jvm import Jvm
from epochal.spark_plugins.listener import Listener
from epochal.spark_plugins.progress import Progress
from epochal.spark_plugins.remote.commits import CommitsWatch
from epochal.txn.batches import BatchOutcome
from epochal.txn.choices import Choices
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import EpochalError, FencedOut, NotSettled, SparkGone
from epochal.txn.events import Observer, StreamRefused
from epochal.txn.files import Files, join
from epochal.txn.journal import Journal, scratch_beside
from epochal.txn.live import Live
from epochal.txn.live_fold import LiveObserver
from epochal.txn.live_writer import LiveWriter
from epochal.txn.participant import Participant
from epochal.txn.process import Process, this_process
from epochal.txn.reporting import stream_name
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


def coordinator_of(
    checkpoint: SparkCheckpoint,
    sinks: Sequence[Participant[DataFrame]],
    *,
    eager: bool,
    journal: str | None,
    choices: Choices,
    observers: Sequence[Observer] = (),
    name: str | None = None,
) -> Coordinator[DataFrame]:
    """The coordinator of a query on this checkpoint, not yet started."""
    place = spark_path(checkpoint.path)  # it is resolved already
    return Coordinator(
        journals=lambda incarnation: open_journal(place, journal, incarnation),
        checkpoint=checkpoint,
        participants=sinks,
        eager=eager,
        choices=choices,
        version=__version__,
        scratch=scratch_beside(resolve(journal or join(place, "epochal"))[1]),
        observers=observers,
        stream=stream_name(checkpoint.path, name),
    )


class Run:
    """A query's run under one generation."""

    def __init__(
        self,
        binding: Binding,
        sinks: Sequence[Participant[DataFrame]],
        *,
        eager: bool,
        journal: str | None,
        max_pending: int,
        choices: Choices,
        settle_timeout: float,
        observers: Sequence[Observer] = (),
        name: str | None = None,
    ) -> None:
        self.binding = binding
        self._settle_timeout = settle_timeout
        self._ending = threading.Lock()
        self._closed = False
        self._settled = False
        self._live_events = LiveObserver()
        self._fault: tuple[Exception, str, int] | None = None  # the last error in a batch
        self._jvm = None if is_connect(binding.session) else Jvm(binding.session)
        self._looking = threading.Lock()
        self._gone: SparkGone | None = None
        self.progress = Progress()
        files, checkpoint = resolve(binding.checkpoint, binding.session)
        self._recover_arguments = checkpoint if journal is None else f"{checkpoint} --journal {journal}"
        coordinator = coordinator_of(
            SparkCheckpoint(files, checkpoint),
            sinks,
            eager=eager,
            journal=journal,
            choices=choices,
            observers=[self.progress, self._live_events, *observers],
            name=name or binding.name,
        )
        self._settler: Settler[DataFrame] = Settler(
            coordinator, max_pending=max_pending, on_failure=lambda _: self._stop_query()
        )
        coordinator.begin()
        me = weakref.ref(self)
        self._live = live_writer_of(
            coordinator,
            resolve(journal or join(spark_path(checkpoint), "epochal")),
            self._live_events,
            jvm=None if self._jvm is None else self._jvm.process,
            on_beat=lambda: _retire_without_spark(me()),
        )
        self._live.start()
        # This start settles what an earlier one in this process left unsettled.
        exit_code.clear(self._recover_arguments)
        # The first batch settles what earlier generations decided; this thread does if no batch comes.
        self._settler.start()
        self._settler.wake()
        self._listener: Listener | CommitsWatch
        if is_connect(binding.session):
            self._listener = CommitsWatch(SparkCheckpoint(files, checkpoint).committed, self._settler.wake)
        else:
            self._listener = Listener(
                binding.session,
                binding.run_id,
                on_progress=self._settler.wake,
                on_end=lambda fault: _retire_soon(me(), fault),
            )
        _runs.add(self)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def generation(self) -> int:
        return self._settler.coordinator.generation

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

    def failed(self, text: str) -> None:
        """Spark says that the query has failed: write why into the live file, unless `refused` has."""
        fault, reason, epoch = self._fault or (None, one_line(text), None)
        if isinstance(fault, NotSettled):
            return  # it was stopped while a store did not answer
        error = "StreamingQueryException" if fault is None else type(fault).__name__
        coordinator = self._settler.coordinator
        self._live_events(
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
            try:
                self.settle()
                self._settled = True
            except FencedOut as fault:  # the other driver settles
                log.error("query ended with unsettled epochs: %s", fault, extra={"query": self.binding.query_id})
            except (EpochalError, OSError, Py4JError) as fault:
                log.error("query ended with unsettled epochs: %s", fault, extra={"query": self.binding.query_id})
                exit_code.record_unsettled(self._recover_arguments, str(fault))
            self.close()

    def halt(self) -> None:
        """Stop the query, then retire. A batch that is being staged would block the exit of the interpreter."""
        self.stop_waiting()
        if self.spark_gone(patience=0.0) is None and not is_connect(self.binding.session):
            # With Spark Connect this process ends because the query has, or the server.
            self._stop_query()
        self.retire()

    def _stop_query(self) -> None:
        """Stop the query: rows are lost, or another driver has taken over. An idle query would not notice."""
        try:
            query = self.binding.session.streams.get(self.binding.query_id)
            if query is not None and query.runId == self.binding.run_id:
                query.stop()
        except (Py4JError, OSError) as fault:
            log.debug("query could not be stopped", extra={"error": repr(fault)})

    def close(self) -> None:
        """Stop the settler and the listener."""
        was_closed, self._closed = self._closed, True
        self._settler.stop()
        self._listener.remove()
        _runs.discard(self)
        if not was_closed:
            coordinator = self._settler.coordinator
            coordinator.reporter.ended(coordinator.lineage, settled=self._settled)
            self._live.end()


def live_writer_of(
    coordinator: Coordinator[DataFrame],
    journal: tuple[Files, str],
    observer: LiveObserver,
    *,
    jvm: Process | None = None,
    on_beat: Callable[[], None] = lambda: None,
) -> LiveWriter:
    """The writer of live files for a coordinator that has begun. `journal` is that of the first incarnation."""
    files, first = journal
    lineage, generation = coordinator.lineage, coordinator.generation
    incarnation = int(lineage.partition("~")[2] or 1)
    live = Live(
        lineage=lineage,
        generation=generation,
        start=coordinator.journal.view.start_of(generation),
        journal=coordinator.journal.place,
        process=this_process(),
        jvm=jvm,
        at=time.time(),
    )
    earlier = [journal_path(first, number) for number in range(1, incarnation)]
    return LiveWriter(files, coordinator.journal.path, live, observer, earlier=earlier, on_beat=on_beat)


def _retire_soon(run: Run | None, fault: str | None) -> None:
    """Retire in a new thread: Spark's listener bus is shared and must not wait for a store."""
    if run is not None:
        if fault is not None:
            run.failed(fault)
        threading.Thread(target=run.retire, name="epochal-retire", daemon=True).start()


def _retire_without_spark(run: Run | None) -> None:
    """Retire a run whose JVM has died: nobody else says that its query has ended."""
    if run is not None and not run.is_closed and run.spark_gone(patience=0.0) is not None:
        threading.Thread(target=run.retire, name="epochal-retire", daemon=True).start()


def open_journal(checkpoint: str, given: str | None, incarnation: int = 1) -> Journal:
    """The journal of a checkpoint, or the one at the location that the user gave."""
    files, path = resolve(given or join(checkpoint, "epochal"))
    return Journal(files, journal_path(path, incarnation))


def journal_path(first: str, incarnation: int) -> str:
    """The path of an incarnation's journal, by that of the first."""
    return first if incarnation == 1 else f"{first.rstrip('/')}~{incarnation}"


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
    if context is None:
        return
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_TIMEOUT)
    except (Py4JError, OSError) as fault:
        log.debug("events left in Spark's listener bus", extra={"error": repr(fault)})
