"""Retries: commits are tried again, with back-off, until they succeed.

A store that is down holds the stream back; no data is dropped. Each failure is reported with the step, the sink, how
long it has lasted and why (`reporting.held`), and so is its end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from epochal.txn.batches import BatchOutcome
from epochal.txn.coordinator import Coordinator, Rows
from epochal.txn.cut_file import CutFile
from epochal.txn.errors import CommitFailed, EpochalError, NotSettled, SettlingFailed, StoreAway
from epochal.txn.reporting import SILENT, Reporter
from epochal.txn.state.background import BackgroundFolding
from epochal.txn.state.budget import Budget

log = logging.getLogger("epochal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The pause between tries, in seconds: doubled each time, up to a limit."""

    first: float = 0.1
    limit: float = 30.0

    def after(self, failures: int) -> float:
        """The pause after a number of failures in a row.

        >>> [Backoff().after(n) for n in (1, 2, 3, 20)]
        [0.1, 0.2, 0.4, 30.0]
        """
        return min(self.limit, self.first * 2.0 ** min(failures - 1, 32))


class Retrying:
    """Calls `settle` until it succeeds."""

    def __init__(
        self,
        settle: Callable[[], None],
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        reporter: Reporter = SILENT,
        lineage: Callable[[], str] = str,
    ) -> None:
        self._reporter, self._lineage = reporter, lineage
        self._settle_once = settle
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._held_since: float | None = None

    def settle(self, timeout: float | None = None) -> None:
        """Settle every decided epoch; NotSettled if a store does not answer for `timeout` seconds."""
        deadline = None if timeout is None else self._clock() + timeout
        failures = 0
        while True:
            failed = self._try()
            if failed is None:
                return
            failures += 1
            pause = self._backoff.after(failures)
            if deadline is not None and self._clock() + pause > deadline:
                raise NotSettled(
                    f"{failed}. The epoch is decided and safe: it will be committed at the next start of the query or "
                    "by `epochal recover CHECKPOINT`"
                ) from failed
            if deadline is not None:
                self._sleep(pause)  # with a deadline, stopping the query does not end the wait
            elif self._stopping.wait(pause):
                raise NotSettled(f"stopped while waiting: {failed}") from failed

    def _try(self) -> CommitFailed | OSError | None:
        """Settle once; returns the failure if a retry may help."""
        with self._lock:
            try:
                self._settle_once()
            except (CommitFailed, OSError) as failed:
                self._report_held(failed)
                return failed
            self._report_resumed()
            return None

    def _report_held(self, failed: CommitFailed | OSError, epoch: int | None = None) -> None:
        now = self._clock()
        if self._held_since is None:
            self._held_since = now
        self._reporter.held(self._lineage(), failed, epoch, now - self._held_since)

    def _report_resumed(self) -> None:
        if self._held_since is not None:
            self._reporter.resumed(self._lineage(), self._clock() - self._held_since)
            self._held_since = None


class Settler(Retrying, Generic[Rows]):
    """Runs a coordinator from several threads: batches, progress events, stop and exit."""

    def __init__(
        self,
        coordinator: Coordinator[Rows],
        *,
        max_pending: int = 1,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
        on_failure: Callable[[EpochalError], None] | None = None,
    ) -> None:
        super().__init__(
            self._settle_coordinator,
            backoff=backoff,
            clock=clock,
            sleep=sleep,
            reporter=coordinator.reporter,
            lineage=lambda: coordinator.lineage,
        )
        self.coordinator = coordinator
        self._max_pending = max_pending
        self._wall = wall
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._cut = CutFile()
        self._folding: BackgroundFolding | None = None
        self.failure: EpochalError | None = None  # the error that ended the background thread

    def _settle_coordinator(self) -> None:
        self.coordinator.settle()

    def settle(self, timeout: float | None = None) -> None:
        super().settle(timeout)
        if self._thread is None:  # else it does this, so that no batch waits for it
            self._show_cut()

    def start(self) -> None:
        """Settle in the background whenever `wake` is called, and fold the journal in the background too."""
        self._folding = self.coordinator.folding = BackgroundFolding(Budget(lambda: self.coordinator.journal.share))
        self._folding.start()
        self._thread = threading.Thread(target=self._loop, name="epochal-settler", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tell the background thread that there may be something to settle."""
        self._wake.set()

    def run(self, epoch: int, rows: Rows) -> BatchOutcome:
        """Stage an epoch, after waiting until fewer than `max_pending` earlier epochs are pending."""
        try:
            return self._run(epoch, rows)
        except EpochalError as fault:
            self._reporter.refused(self._lineage(), fault, epoch)
            raise

    def _run(self, epoch: int, rows: Rows) -> BatchOutcome:
        self._raise_failure()
        with self._lock:
            self._wait_for_room(epoch)
            failures = 0
            while True:
                try:
                    outcome = self.coordinator.run(epoch, rows)
                except StoreAway as away:
                    failures += 1
                    self._report_held(away, epoch)
                    self._wait(failures, away)
                    continue
                self._report_resumed()
                return outcome

    def give_up(self) -> None:
        """End every wait. Decided epochs are not lost: the next start settles them."""
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """End every wait, and wait for the background thread to end."""
        self.give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=30)
            self._cut.update(self.coordinator.journal, self.coordinator.journal.view)  # what was settled last
        if self._folding is not None:
            self.coordinator.folding = None
            self._folding.stop()

    def _show_cut(self) -> None:
        """Bring the watermark file up to date, without the lock: no batch waits for it."""
        journal = self.coordinator.journal
        if not self._cut.has_begun(journal):
            with self._lock:  # it reads the journal
                self._cut.begin(journal)
        self._cut.update(journal, journal.view)

    def _wait_for_room(self, epoch: int) -> None:
        """Wait until few enough earlier epochs are pending."""
        if self.coordinator.is_settled_below(epoch):
            return  # the background thread has settled them while Spark planned this epoch
        failures = 0
        while True:
            failed = self._try()
            if failed is None or self._has_room(epoch):
                return
            failures += 1
            self._wait(failures, failed)

    def _wait(self, failures: int, failed: CommitFailed | OSError) -> None:
        """Pause in a batch, without the lock, so that stop and the background thread can go on."""
        self._lock.release()
        try:
            if self._stopping.wait(self._backoff.after(failures)):
                self._raise_failure()
                raise NotSettled(f"stopped while waiting: {failed}") from failed
        finally:
            self._lock.acquire()

    def _has_room(self, epoch: int) -> bool:
        try:
            allowed = 1 if self.coordinator.keeps_open() else self._max_pending
            return self.coordinator.pending_below(epoch) < allowed
        except OSError:
            return False  # the journal cannot be read, so the number is not known

    def _roll(self) -> CommitFailed | OSError | None:
        """Close what is due between epochs; returns the failure if a retry may help."""
        with self._lock:
            try:
                while self.coordinator.roll() and self._until_due() == 0.0:
                    pass  # each roll closes all that is due by now
            except (CommitFailed, OSError) as failed:
                self._report_held(failed)
                return failed
            self._report_resumed()
            return None

    def _until_due(self) -> float | None:
        """The seconds until the next part is due to be closed; None if there is none."""
        if not self.coordinator.keeps_open():
            return None
        with self._lock:
            try:
                due = self.coordinator.due()
            except OSError as failed:  # the journal cannot be read
                self._report_held(failed)
                return self._backoff.limit
        return None if due is None else max(0.0, due - self._wall())

    def _loop(self) -> None:
        failures = 0
        pause: float | None = None
        while not self._stopping.is_set():
            self._wake.wait(self._backoff.after(failures) if failures else pause)
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                failed = self._try()
                self._show_cut()
                pause = self._until_due() if failed is None else None
                if pause == 0.0:
                    failed = self._roll()
                    pause = self._until_due()
                # Due but not closed: an epoch is being written, and its end wakes us. Back off until then.
                failures = failures + 1 if failed is not None or pause == 0.0 else 0
            except EpochalError as fault:
                self._fail(fault)
                return
            except Exception as fault:  # noqa: BLE001  # a thread that died without a report would leave epochs invisible
                unknown = SettlingFailed(
                    f"settling stopped with an unexpected error: {type(fault).__name__}: {fault}. Decided epochs are "
                    "safe: `epochal recover CHECKPOINT` finishes them, or the next start of the query"
                )
                unknown.__cause__ = fault
                self._fail(unknown)
                return

    def fail(self, fault: EpochalError) -> None:
        """Stop because of what another thread has seen, unless it has stopped already."""
        if self.failure is None:
            self.failure = fault  # first: whoever waits raises it
            self.give_up()
            self._fail(fault)

    def _fail(self, fault: EpochalError) -> None:
        """Stop: a retry would not help. The next batch, or the call that waits for the query, raises the error."""
        self.failure = fault
        self._reporter.refused(self._lineage(), fault, None)
        if isinstance(fault, SettlingFailed):
            log.error("the unexpected error while settling was:", exc_info=fault.__cause__)
        if self._on_failure is not None:
            self._on_failure(fault)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
