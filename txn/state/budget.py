"""The processor time that folding may take: a share of the time that passes, saved up until it is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """What one thread has spent, and may still spend. Any thread may ask."""

    def __init__(
        self,
        share: Callable[[], float | None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        """With a share between 0 and 1, that much of a processor; without one, all of it."""
        self._share = share
        self._clock = clock
        self._thread_time = thread_time
        self._since = clock()
        self._charged = 0.0  # how much of the thread's time is in `spent`
        self.spent = 0.0  # seconds of a processor

    def affords(self, seconds: float) -> bool:
        """Whether so many seconds of a processor have been saved up."""
        share = self._share()
        return share is None or share * (self._clock() - self._since) - self.spent >= seconds

    @property
    def is_overspent(self) -> bool:
        """Whether twice as much was spent as there was, and that will not be made good within a minute."""
        share = self._share()
        elapsed = self._clock() - self._since
        return share is not None and self.spent > max(2 * share * elapsed, share * (elapsed + 60))

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge what this thread does."""
        self._charged = self._thread_time()
        try:
            yield
        finally:
            self.charge()

    def charge(self) -> None:
        """Bring `spent` up to date in the midst of what this thread does."""
        now = self._thread_time()
        self.spent += now - self._charged
        self._charged = now
