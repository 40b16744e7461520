"""A generation that this process has claimed, with what reports about it. Spark may not run the query yet.

`EpochWriter.start` claims it before Spark starts the query, so that an earlier driver can end first. A writer that was
given to foreachBatch claims it in the first batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.coordinators import Coordinators
from epochal.spark_plugins.progress import Progress
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import EpochalError, TwoDrivers
from epochal.txn.events import Observer, StreamRefused
from epochal.txn.files import Files
from epochal.txn.incarnations import incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.live import Live
from epochal.txn.live_fold import LiveObserver
from epochal.txn.live_writer import LiveWriter
from epochal.txn.process import this_process
from epochal.txn.reporting import one_line
from epochal.txn.start import driver_of, superseded
from epochal.txn.takeover import Takeover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Lead:
    """A claimed generation: its coordinator, its events and its live file."""

    def __init__(
        self,
        coordinators: Coordinators,
        checkpoint: SparkCheckpoint,
        *,
        observers: Sequence[Observer] = (),
        name: str | None = None,
        frame: DataFrame | None = None,
        waits: bool = False,
        instead_of: str | None = None,
    ) -> None:
        """Claim the next generation, which will write the columns of `frame`.

        With `waits`, live files of earlier drivers stay until `wait` returns.
        With `instead_of`, the id of a start: Overtaken unless that one is still the newest.
        """
        self.checkpoint, self.query = checkpoint.path, checkpoint.query_id()
        self.progress = Progress()
        self.live_events = LiveObserver()
        self.coordinator = coordinators.of(
            checkpoint, observers=[self.progress, self.live_events, *observers], name=name
        )
        self.coordinator.begin(frame, instead_of=instead_of)
        files, first = coordinators.first_journal(checkpoint)
        self._takeover = Takeover.of(self.coordinator.begun, files, self.coordinator.reporter)
        self.live = live_writer_of(self.coordinator, (files, first), self.live_events)
        self.live.keep_earlier = waits and bool(self._takeover.earlier())
        self.live.start()

    def wait(self, timeout: float) -> None:
        """Wait for earlier drivers to end. FencedOut if a newer one has started meanwhile."""
        if self.live.keep_earlier:
            self._takeover.wait(timeout)
            self.live.keep_earlier = False

    def abandon(self, fault: BaseException) -> None:
        """The query has not started: say so in the live file."""
        coordinator = self.coordinator
        if isinstance(fault, EpochalError):
            coordinator.reporter.refused(coordinator.lineage, fault, None)
        elif isinstance(fault, Exception):
            stream = coordinator.reporter.observers.stream
            why = {"error": type(fault).__name__, "reason": one_line(fault)}
            self.live_events(
                StreamRefused(lineage=coordinator.lineage, stream=stream, at=time.time(), epoch=None, **why)
            )
        coordinator.reporter.ended(coordinator.lineage, settled=False)
        self.live.end()

    def has_newer(self) -> bool:
        """Whether a newer generation seems to have started. Cheap, and for any thread."""
        # A driver that a test holds at a failpoint must act as one that stalls: none of its threads looks.
        return not failpoints.can_pause() and self.coordinator.journal.has_start(self.coordinator.generation + 1)

    def why_superseded(self) -> EpochalError | None:
        """The error of this driver if a newer generation has started. For any thread."""
        journal = Journal(self.coordinator.journal.files, self.coordinator.journal.path, with_states=False)
        why = self.coordinator.begun.why_superseded(journal.read())
        return None if why is None else superseded(self.coordinator.generation, why)

    def two_drivers(self) -> TwoDrivers:
        """The error if Spark has stopped this query because another one writes to its checkpoint."""
        earlier = [
            started
            for _, started in sorted(self.coordinator.begun.before.generations.items())
            if not started.driver.by_command
        ]
        before = f"generation {earlier[-1].generation} ({driver_of(earlier[-1])})" if earlier else "none that is known"
        return TwoDrivers(
            f"Spark stopped this query because another driver wrote to its checkpoint {self.checkpoint} at the same "
            f"time. The driver before this one is {before}. No row is lost or doubled: this one, generation "
            f"{self.coordinator.generation}, is the newest, and an earlier driver stops at its next batch. Make sure "
            "that the other has ended, then start the query again"
        )


def live_writer_of(
    coordinator: Coordinator[DataFrame], journal: tuple[Files, str], observer: LiveObserver
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
        at=time.time(),
    )
    earlier = [incarnation_path(first, number) for number in range(1, incarnation)]
    return LiveWriter(files, coordinator.journal.path, live, observer, earlier=earlier)
