"""Measures what a journal's state costs: how quickly it is restored, decoded and merged, how quickly it changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from epochal.txn.state.policy import Measured

FEW = 1000  # entries; the time of fewer says nothing about a rate


class Gauge:
    """The measurements of one journal. Several threads may measure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._changes = 0
        self._merging = 0.0  # seconds of a processor, so far
        self._since = clock()
        self.measured = Measured()
        self.recovery: float | None = None  # seconds that the last reading with segments took, if there was one

    def changed(self, entries: int) -> None:
        """An epoch, or a roll, has changed so many entries."""
        with self._lock:
            self._changes += entries

    def sized(self, *, live: int, record: float) -> None:
        """There are so many live entries, and an epoch's records have so many bytes."""
        with self._lock:
            self.measured = self.measured.with_rate("live", live, 1.0).with_rate("record", record, 1.0)

    def note_changes(self) -> None:
        """Note how quickly entries changed since the last call."""
        with self._lock:
            seconds = self._clock() - self._since
            if seconds > 0:
                self.measured = self.measured.with_rate("changed", self._changes / seconds)
                self._changes, self._since = 0, self._clock()

    @contextmanager
    def restoring(self, entries: int) -> Iterator[None]:
        """Measure how long it takes to restore so many entries."""
        begun = self._clock()
        yield
        self._note("restored", entries, self._clock() - begun)

    @contextmanager
    def merging(self, entries: int) -> Iterator[None]:
        """Measure what it costs this thread to merge so many entries."""
        begun = time.thread_time()
        yield
        spent = time.thread_time() - begun
        self._merging += spent
        if entries >= FEW:
            with self._lock:
                self.measured = self.measured.with_rate("merged", spent / entries)

    @contextmanager
    def folding(self, work: int) -> Iterator[None]:
        """Measure what so much work costs this thread, without merging (`policy.fold_work`)."""
        begun, merging = time.thread_time(), self._merging
        yield
        spent = time.thread_time() - begun - (self._merging - merging)
        if work >= FEW:
            with self._lock:
                self.measured = self.measured.with_rate("folded", spent / work)

    def decoded(self, size: int, seconds: float) -> None:
        """Records of so many bytes were decoded in this time."""
        if size >= 100_000:
            self._note("decoded", size, seconds)

    def _note(self, name: str, amount: float, seconds: float) -> None:
        if amount >= FEW and seconds > 0:
            with self._lock:
                self.measured = self.measured.with_rate(name, amount / seconds)
