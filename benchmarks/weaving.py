"""Runs several queries of one session in turns, an epoch each, so that all of them meet the same noise.

A machine that others use, a JVM that compiles and collects, a disk that flushes: all of these change within seconds by
more than what a small cost makes. Two runs one after the other cannot show a cost of some per cent. Here the runs are
woven together: while one query does an epoch, the others wait at a gate before theirs, and do nothing. The turns of a
step follow each other within a fraction of a second.

A run has one turn more than epochs: its start, until it waits before epoch 0; then an epoch each, until it waits before
the next one, everything of the last one being visible; the last turn ends with the query. The sum of its turns is the
time of the whole run.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal import EpochWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from epochal.spark_plugins.query import EpochQuery

LONGEST_TURN = 300.0  # seconds
LOOK = 1.0  # seconds between two looks whether a query has failed


class GatedWriter(EpochWriter):
    """An EpochWriter that waits for its turn before each epoch."""

    def __init__(self, *sinks: Any, **options: Any) -> None:
        super().__init__(*sinks, **options)
        self.arrived = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        self.settle()  # the epoch before, in its own turn; else the settler's thread would go on in that of another
        self.arrived.release()
        self.go.acquire()
        super().__call__(frame, epoch)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn took, in seconds."""

    wall: float
    cpu: float


class WovenRun:
    """One run of a query, from its start to its end, in turns."""

    def __init__(self, writer: GatedWriter, stream: DataStreamWriter, epochs: int) -> None:
        self._writer, self._stream, self._epochs = writer, stream, epochs
        self._query: EpochQuery | None = None
        self._next = -1  # the turn that has been taken: -1 is none, 0 the start

    def take(self) -> None:
        """Take one turn."""
        self._next += 1
        if self._next == 0:
            self._query = self._writer.start(self._stream)
        else:
            self._writer.go.release()
        assert self._query is not None
        if self._next < self._epochs:
            self._wait(self._query)
        else:
            self._query.awaitTermination()

    def abandon(self) -> None:
        """Stop the query if it still runs."""
        if self._query is not None and self._query.isActive:
            self._writer.go.release(self._epochs)
            self._query.stop()

    def _wait(self, query: EpochQuery) -> None:
        deadline = time.monotonic() + LONGEST_TURN
        while not self._writer.arrived.acquire(timeout=LOOK):
            if not query.isActive:
                query.awaitTermination()
                raise SystemExit("the query ended before its last epoch: there is no result")
            if time.monotonic() > deadline:
                raise SystemExit(f"an epoch took longer than {LONGEST_TURN:.0f} s: there is no result")


class CpuClock:
    """The CPU time of this process and of Spark's JVM, with that of threads that have ended. Linux only."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        # clock_getcpuclockid(3): the kernel's name for the clock of a process.
        self._clocks = [(~pid << 3) | 2 for pid in (os.getpid(), jvm.java.lang.ProcessHandle.current().pid())]

    def seconds(self) -> float:
        return sum(time.clock_gettime(clock) for clock in self._clocks)


def orders(names: Sequence[str]) -> Iterator[list[str]]:
    """In which order turns are taken: each order as often as the others. ABBA if there are two."""
    return map(list, itertools.cycle(itertools.permutations(names)))


def weave(
    runs: dict[str, WovenRun],
    epochs: int,
    order: Iterator[list[str]],
    clock: CpuClock,
    during: Callable[[str], AbstractContextManager[None]],
) -> dict[str, list[Turn]]:
    """Take all turns of all runs. `during` surrounds each turn of a run and is not measured."""
    taken: dict[str, list[Turn]] = {name: [] for name in runs}
    try:
        for _ in range(epochs + 1):
            for name in next(order):
                with during(name):
                    cpu, start = clock.seconds(), time.perf_counter()
                    runs[name].take()
                    taken[name].append(Turn(time.perf_counter() - start, clock.seconds() - cpu))
    finally:
        for run in runs.values():
            run.abandon()
    return taken
