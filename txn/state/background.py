"""Folding in a thread of its own: no epoch waits for it, and its failures stop nothing."""

from __future__ import annotations

import logging
import threading

from epochal.txn.journal import Journal
from epochal.txn.state.budget import Budget
from epochal.txn.state.folding import Abandoned
from epochal.txn.state.folding_plan import FoldingPlan

log = logging.getLogger("epochal")

END_TIMEOUT = 10.0  # seconds that the end of a query waits for folding, and for the step that is then being taken


class BackgroundFolding:
    """Carries out the newest plan that it was offered."""

    def __init__(self, budget: Budget | None = None) -> None:
        """What is beyond the budget waits, or is left out."""
        self._budget = budget or Budget()
        self._changed = threading.Condition()
        self._offered: tuple[Journal, FoldingPlan] | None = None
        self._working = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_overspent = False  # and that was said
        self.failed = False  # the last round

    @property
    def seconds(self) -> float:
        """Of a processor, that folding has taken."""
        return self._budget.spent

    def affords(self, seconds: float) -> bool:
        """Whether there is the time of a processor for what takes so long. Any thread may ask."""
        return self._budget.affords(seconds)

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
        with self._budget.spending():
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
        if self._budget.is_overspent and not self._is_overspent:
            self._is_overspent = True
            log.warning(
                "folding what sinks keep takes more than its share of a processor: it changes too quickly for that",
                extra={"journal": journal.path},
            )

    def _between(self) -> None:
        """Between two shards: end if the query ends."""
        self._budget.charge()
        if self._stopping.is_set():
            raise Abandoned

    def _affords(self, seconds: float) -> bool:
        """Whether a merge may begin that takes so long, after what this round has taken.

        A merge that rested instead would hold up what comes after it: changes would wait in records.
        """
        self._budget.charge()
        return self._budget.affords(seconds)
