"""Reads cuts for as long as drivers of other processes run and die, and compares the sinks with each other."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

import epochal
from integration_tests.spark.checks import planned
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import Row, World, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE = 1.0  # seconds between two looks: each takes a good part of a processor, and the drivers need them


class CutReader:
    """Looks in a thread of this process. In each cut every sink must have exactly the rows of its epochs."""

    def __init__(self, spark: SparkSession, world: World, sinks: int) -> None:
        self._spark, self._world, self._sinks = spark, world, sinks
        self._stop = threading.Event()
        self._looks = 0
        self._thread = threading.Thread(target=self._watch, name="cut-reader", daemon=True)
        self.epochs: list[int] = []
        self.faults: list[str] = []

    def __enter__(self) -> CutReader:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_a_look(self) -> None:
        """Return once there was a look that began after this call, or a fault."""
        wanted = self._looks + 2  # one may be under way
        wait_until(lambda: self._looks >= wanted, "a look at the cut")

    def _watch(self) -> None:
        try:
            while not self._stop.wait(PAUSE):
                self._look()
                self._looks += 1
            self._look()  # what is there at the end
        except Exception:  # noqa: BLE001  # the test tells it
            self.faults.append(traceback.format_exc())
            self._looks += 2  # nobody waits for another

    def _look(self) -> None:
        if not self._world.journal.exists():
            return  # no driver has come so far
        frames = epochal.read_cut(self._spark, str(self._world.checkpoint))
        epoch = frames.epoch
        if epoch < 0 or epoch in self.epochs[-1:]:
            return
        epoch_of = planned(self._world)
        files = [file for file, of in epoch_of.items() if of <= epoch]
        expected = Counter(row for file in files for row in rows_of(file))
        if len(frames) != self._sinks:
            self.faults.append(f"epoch {epoch}: only {sorted(frames)} are in it, without {dict(frames.left_out)}")
        for name, frame in frames.items():
            # Delta has no empty texts in partition columns.
            found: Counter[Row] = Counter((r["id"], r["file"], r["kind"] or "", r["word"]) for r in frame.collect())
            if found != expected:
                self.faults.append(f"epoch {epoch}: {name} lacks {expected - found}, too much {found - expected}")
        if self.epochs and epoch < self.epochs[-1]:
            self.faults.append(f"epoch {epoch} after {self.epochs[-1]}")
        self.epochs.append(epoch)
