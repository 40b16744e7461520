"""A new driver lets the earlier ones end before Spark starts its query.

Nothing that is correct depends on this: the journal fences an earlier driver, whatever it still does. But Spark writes
``offsets/N`` before it calls us, and stops the newer of two queries that both do. So a driver that has claimed its
generation waits: the earlier one looks for a newer generation with each heartbeat, stops its query, and says so in its
live file.

The wait ends when the earlier driver has ended, its process is gone, it has not written a live file for a while (it
hangs, is suspended, is cut off, or died on another machine), or time is up. Its silence is measured by our own
monotonic clock, from one file to the next, so the clocks of two machines need not agree, and either may be set
meanwhile. The time in a file is never compared with ours: a driver elsewhere that has left a file is watched, however
old the file looks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from epochal.txn.events import TakeoverBegun, TakeoverEnd, TakeoverEnded
from epochal.txn.files import Files
from epochal.txn.live import HEARTBEAT, Live, LiveState, read_lives
from epochal.txn.process import Process, Running, running, this_process
from epochal.txn.records import GenerationStarted
from epochal.txn.reporting import Reporter
from epochal.txn.start import Generation, superseded

log = logging.getLogger("epochal")

QUIET = 2.5 * HEARTBEAT  # seconds without a new live file after which nobody waits for a driver any longer
LOOK = 0.25  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a driver: its live file, by sequence."""

    sequence: int
    live: Live


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """One start that waits for the earlier drivers of its stream."""

    generation: Generation
    files: Files  # where live files are
    reporter: Reporter
    me: Process
    looked_up: Callable[[Process], Running] = running
    ticks: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @staticmethod
    def of(generation: Generation, files: Files, reporter: Reporter) -> Takeover:
        """That of a generation which this process has just claimed."""
        return Takeover(generation=generation, files=files, reporter=reporter, me=this_process())

    def earlier(self) -> list[GenerationStarted]:
        """The earlier drivers that run, or may run, the newest first."""
        signs = self._signs()
        return [record for record in self._known(signs) if self._may_run(record, signs.get(record.generation))]

    def wait(self, timeout: float) -> None:
        """Wait for all of them, so many seconds at most. FencedOut if a newer driver has started meanwhile."""
        began = self.ticks()
        for record in self.earlier():
            self._wait_for(record, began + timeout)

    def _known(self, signs: dict[int, Sign]) -> Iterator[GenerationStarted]:
        """The last start before this one, and older ones that left a live file.

        The file of an older one is removed when a later driver no longer waits for it.
        """
        before = self.generation.before
        for number in sorted(before.generations, reverse=True):
            record = before.generations[number]
            if not record.driver.by_command and (record is before.latest or number in signs):
                yield record

    def _may_run(self, record: GenerationStarted, sign: Sign | None) -> bool:
        process = record.driver.process
        if process.is_same_as(self.me):
            return False  # Spark itself ends the earlier of two runs in one process
        if sign is not None and sign.live.state is LiveState.ENDED:
            return False
        found = self.looked_up(process)
        if found is Running.UNKNOWN:  # it is elsewhere: only whether it writes another file tells
            return sign is not None
        return found is Running.YES

    def _wait_for(self, record: GenerationStarted, deadline: float) -> None:
        process, number = record.driver.process, record.generation
        began = self.ticks()
        facts = {"generation": self.generation.number, "earlier": number, "host": process.host, "pid": process.pid}
        lineage = self.generation.lineage
        left = max(0.0, deadline - began)
        self.reporter.emit(TakeoverBegun, lineage, since=record.at, timeout=left, **facts)
        how = self._ended(record, process, deadline)
        self.reporter.emit(TakeoverEnded, lineage, how=how, seconds=self.ticks() - began, **facts)

    def _ended(self, record: GenerationStarted, process: Process, deadline: float) -> TakeoverEnd:
        """Wait for the end of one driver."""
        heard, last = self.ticks(), -1
        while True:
            self._check_fence()
            sign = self._signs().get(record.generation)
            if sign is not None and sign.live.state is LiveState.ENDED:
                return "ended"
            if self.looked_up(process) is Running.NO:
                return "gone"
            now = self.ticks()
            if sign is not None and sign.sequence != last:
                heard, last = now, sign.sequence
            if now - heard >= QUIET:
                return "silent"
            if now >= deadline:
                return "timeout"
            self.sleep(LOOK)

    def _check_fence(self) -> None:
        try:
            why = self.generation.why_superseded(self.generation.journal.read())
        except OSError as fault:  # the first batch checks it again
            log.debug("journal not read while waiting", extra={"error": repr(fault)})
            return
        if why is not None:
            raise superseded(self.generation.number, why)

    def _signs(self) -> dict[int, Sign]:
        """The last live file of each earlier driver."""
        journal, starts = self.generation.journal, self.generation.before.generations
        try:
            found = read_lives(self.files, journal.path, place=journal.place)
        except OSError as fault:
            log.debug("live files not read while waiting", extra={"error": repr(fault)})
            return {}
        return {
            number: Sign(sequence, live)
            for number, (sequence, live) in found.items()
            if number in starts and live.start == starts[number].start
        }
