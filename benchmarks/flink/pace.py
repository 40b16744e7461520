"""Sets Flink's checkpoint interval, so that it makes about as many checkpoints as Spark has epochs."""

from __future__ import annotations

from benchmarks.flink import Copied, Flink

FIRST_MS = 100
LEAST_MS = 10  # Flink's shortest interval


class Paced:
    """Copies one source by Flink. The interval of each run follows from the number of checkpoints in the run before."""

    def __init__(self, flink: Flink, source: str, epochs: int) -> None:
        self._flink, self._source, self._epochs = flink, source, epochs
        self._interval = FIRST_MS
        self.runs: list[tuple[int, Copied]] = []  # each with its interval

    def copy(self, target: str, checkpoints: str) -> float:
        """The seconds until every row is visible."""
        copied = self._flink.copy(self._source, target, checkpoints, self._interval)
        self.runs.append((self._interval, copied))
        self._interval = max(LEAST_MS, round(self._interval * copied.checkpoints / self._epochs))
        return copied.seconds
