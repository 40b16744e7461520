"""Watches ``commits/``: on Spark Connect no event tells the process that writes batches that one is checkpointed.

It looks only while an epoch is prepared and not yet committed: at first often, since Spark writes the file within
milliseconds, then less and less. An idle stream costs nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("epochal")

FIRST, LIMIT = 0.02, 1.0  # seconds between two looks


class CommitsWatch:
    """Calls `on_commit` when an expected epoch is in ``commits/``. It must return at once."""

    def __init__(self, committed: Callable[[], int], on_commit: Callable[[], None]) -> None:
        self._committed, self._on_commit = committed, on_commit
        self._expected = -1
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="epochal-commits", daemon=True)
        self._thread.start()

    def expect(self, epoch: int) -> None:
        """An epoch is prepared: Spark writes its file next."""
        with self._changed:
            self._expected = max(self._expected, epoch)
            self._changed.notify()

    def remove(self) -> None:
        """Stop watching. Idempotent."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch(self) -> None:
        seen, pause = -1, FIRST
        while True:
            with self._changed:
                before = self._expected
                self._changed.wait(None if self._expected <= seen else pause)
                if self._stopped:
                    return
                expected = self._expected
            pause = FIRST if expected != before else min(LIMIT, pause * 1.5)
            if expected <= seen:
                continue
            try:
                found = self._committed()
            except OSError as fault:
                log.debug("commits not read", extra={"error": str(fault)})
                continue
            if found >= expected:
                seen = expected
                self._on_commit()
