"""What Spark's progress of a query gains: what became of each epoch in each sink.

::

    query.lastProgress["epochal"]
    {"held": None, "sinks": {"lake": {"visible": True, "lagSeconds": 0.18, "rows": 50000, "bytes": 3100000,
                                      "lastVisibleEpoch": 42, "held": False}}}
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from epochal.txn.events import EpochCommitted, EpochStaged, Event, StreamHeld, StreamResumed, StreamStarted

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

KEEP = 1000  # epochs; Spark keeps the progress of 100 unless set otherwise
KEY = "epochal"


class Progress:
    """An observer that remembers the last epochs of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sinks: tuple[str, ...] = ()
        self._staged: dict[int, dict[str, EpochStaged]] = {}
        self._committed: dict[int, dict[str, EpochCommitted]] = {}
        self._last: dict[str, int] = {}  # sink -> the last epoch it shows
        self._held: StreamHeld | None = None

    def __repr__(self) -> str:
        return "epochal's part of the progress"

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case StreamStarted():
                    self._sinks = event.sinks
                case EpochStaged():
                    _remember(self._staged, event)
                case EpochCommitted():
                    _remember(self._committed, event)
                    self._last[event.sink] = event.epoch
                case StreamHeld():
                    self._held = event
                case StreamResumed():
                    self._held = None

    def of(self, epoch: int) -> dict[str, Any]:
        """What became of an epoch so far, and where the stream stands now."""
        with self._lock:
            held = self._held
            sinks = {}
            for sink in self._sinks:
                staged, shown = self._staged.get(epoch, {}).get(sink), self._committed.get(epoch, {}).get(sink)
                facts = shown or staged
                sinks[sink] = {
                    "visible": shown is not None,
                    "lagSeconds": shown.lag if shown is not None else None,
                    "rows": facts.rows if facts is not None else None,
                    "bytes": facts.bytes if facts is not None else None,
                    "lastVisibleEpoch": self._last.get(sink),
                    "held": held is not None and held.sink == sink,
                }
            why = {"sink": held.sink, "reason": held.reason, "seconds": held.seconds} if held is not None else None
            return {"held": why, "sinks": sinks}

    def added_to(self, progress: StreamingQueryProgress) -> StreamingQueryProgress:
        """Spark's progress, with our part beside its own; in its JSON too."""
        part = self.of(int(progress["batchId"]))
        progress[KEY] = part
        if progress._jdict is not None:
            progress._jdict[KEY] = part
        return progress


def _remember(epochs: dict[int, dict[str, Any]], event: EpochStaged | EpochCommitted) -> None:
    epochs.setdefault(event.epoch, {})[event.sink] = event
    for epoch in [e for e in epochs if e <= event.epoch - KEEP]:
        del epochs[epoch]
