"""Folding in a thread of its own: no epoch waits for it, and its failures stop nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from epochal.txn.journal import Journal
from epochal.txn.state.folding import Abandoned
from epochal.txn.state.folding_plan import FoldingPlan

log = logging.getLogger("epochal")

END_TIMEOUT = 10.0  # seconds that the end of a query waits for folding, and for the step that is then being taken


class BackgroundFolding:
    """Carries out the newest plan that it was offered."""

    def __init__(
        self, *, share: Callable[[], float | None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """With a share between 0 and 1, segments are merged only when folding has left that much of a processor."""
        self._share = share
        self._clock = clock
        self._since = clock()
        self._changed = threading.Condition()
        self._offered: tuple[Journal, FoldingPlan] | None = None
        self._working = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = False  # the last round
        self.seconds = 0.0  # of a processor, that folding has taken

    def start(self) -> None:
        """Fold in the background from now on."""
        self._thread = threading.Thread(target=self._loop, name="epochal-state", daemon=True)
        self._thread.start()

    def offer(self, journal: Journal, plan: FoldingPlan) -> None:
        """Fold by this plan soon; it replaces one that is still waiting."""
        with self._changed:
            self._offered = journal, plan
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is left to do; False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._offered is None and not self._working, timeout)

    def stop(self) -> None:
        """End, once nothing is left to do; a merge that takes too long is abandoned.

        A query that runs for one epoch at a time must be folded too.
        """
        if self._thread is not None and self._thread is not threading.current_thread():
            self.wait(END_TIMEOUT)
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_TIMEOUT)

    def _loop(self) -> None:
        while (offered := self._taken()) is not None:
            self._fold(*offered)
            with self._changed:
                self._working = False
                self._changed.notify_all()

    def _taken(self) -> tuple[Journal, FoldingPlan] | None:
        """The plan to carry out next, once there is one; None if the query ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._offered is not None or self._stopping.is_set())
            offered, self._offered = self._offered, None
            self._working = not self._stopping.is_set()
            return offered if self._working else None

    def _fold(self, journal: Journal, plan: FoldingPlan) -> None:
        begun = time.thread_time()
        try:
            journal.fold(plan, between=self._between, affords=self._affords)
            self.failed = False
        except Exception as fault:  # noqa: BLE001  # whatever it is, the stream goes on, and the next round tries again
            level = logging.DEBUG if self.failed or self._stopping.is_set() else logging.WARNING
            self.failed = True
            log.log(
                level,
                "the journal could not be folded, and grows until it can: %s",
                fault,
                extra={"journal": journal.path, "error": repr(fault)},
            )
        finally:
            self.seconds += time.thread_time() - begun

    def _between(self) -> None:
        """Between two shards: end if the query ends."""
        if self._stopping.is_set():
            raise Abandoned

    def _affords(self, seconds: float) -> bool:
        """Whether the share of a processor has been saved up for a merge that takes so long.

        A merge that rested instead would hold up what comes after it: changes would wait in records.
        """
        share = self._share()
        return share is None or share * (self._clock() - self._since) - self.seconds >= seconds
