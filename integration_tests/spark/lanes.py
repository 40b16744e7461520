"""A driver of several streams, which all die at once, each at a failpoint of its own.

    python -m integration_tests.spark.lanes --lane POINT ROOT ARGUMENTS.. --lane POINT ROOT ARGUMENTS..

A start of Spark takes longer than all that a driver does before it is killed, so several streams share one. A stream
that has come to its point stands there; when the last one does, the process kills itself, with its JVM, as `=kill`
does. A lane whose POINT is empty runs to its end. The arguments are those of `driver`; what holds for the whole
process, as Spark's settings do, is taken from the first lane.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from epochal import EpochWriter
from epochal.spark_plugins.listener import _Events
from epochal.txn import failpoints
from integration_tests.spark import driver
from integration_tests.spark.driver import Ending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "--lane"
_here = threading.local()  # .lane: whose thread this is


class Lane:
    """One stream, and where it is to stand still."""

    def __init__(self, point: str, arguments: argparse.Namespace) -> None:
        self._name, _, hit = point.partition("@")
        self._at = int(hit or 1)
        self._hits: Counter[str] = Counter()
        self.arguments = arguments
        self.stands = False
        self.ending: Ending | None = None

    @property
    def as_wanted(self) -> bool:
        """Whether it stands at its point, or has run to its end if it has none."""
        return self.stands if self._name else self.ending is Ending.DONE

    def run(self, spark: SparkSession, reports: queue.Queue[Lane]) -> None:
        """The stream, to its end."""
        _here.lane = self
        try:
            driver.run(spark, self.arguments)
            self.ending = Ending.DONE
        except Exception as fault:  # noqa: BLE001  # the exit code and the output tell it
            traceback.print_exc()
            self.ending = driver.ending_of(fault)
        reports.put(self)

    def hit(self, name: str, reports: queue.Queue[Lane]) -> None:
        """Stand still for ever, if this is the place."""
        self._hits[name] += 1
        if name == self._name and self._hits[name] == self._at:
            self.stands = True
            reports.put(self)
            threading.Event().wait()


def main(lanes: Sequence[Lane]) -> Ending:
    """Run all of them, and die when all stand."""
    reports: queue.Queue[Lane] = queue.Queue()
    failpoints.hit = lambda name: _lane_of(name).hit(name, reports)
    driver.prepare(lanes[0].arguments)
    _know_whose_thread_it_is()
    spark = driver.session_of(lanes[0].arguments)
    for lane in lanes:
        threading.Thread(target=lane.run, args=(spark, reports), daemon=True).start()
    for _ in lanes:
        reports.get()
    if not all(lane.as_wanted for lane in lanes):
        print([(lane._name, lane.stands, lane.ending) for lane in lanes], flush=True)
        os._exit(Ending.FAILED)  # some may stand, and would never let the interpreter end
    if any(lane.stands for lane in lanes):
        os.killpg(0, signal.SIGKILL)
    return Ending.DONE


def _lane_of(name: str) -> Lane:
    lane: Lane | None = getattr(_here, "lane", None)
    if lane is None:
        raise RuntimeError(f"{name} was hit by {threading.current_thread().name}, which is of no stream")
    return lane


def _know_whose_thread_it_is() -> None:
    """A thread is of the lane of whoever starts it; those that Java calls from learn it from what is called."""
    start_thread, start, write = threading.Thread.start, EpochWriter.start, EpochWriter.__call__
    make_events, terminated = _Events.__init__, _Events.onQueryTerminated

    def thread_started(thread: threading.Thread) -> None:
        run, lane = thread.run, getattr(_here, "lane", None)

        def run_in_lane() -> None:
            _here.lane = lane
            run()

        thread.run = run_in_lane  # type: ignore[method-assign]
        start_thread(thread)

    def started(writer: EpochWriter, stream: Any) -> Any:
        vars(writer)["lane"] = _here.lane
        return start(writer, stream)

    def written(writer: EpochWriter, frame: Any, epoch: int) -> None:
        _here.lane = vars(writer)["lane"]
        write(writer, frame, epoch)

    def events_made(events: _Events, *arguments: Any) -> None:
        vars(events)["lane"] = _here.lane
        make_events(events, *arguments)

    def ended(events: _Events, event: Any) -> None:
        _here.lane = vars(events)["lane"]
        terminated(events, event)

    threading.Thread.start = thread_started  # type: ignore[assignment,method-assign]
    EpochWriter.start = started  # type: ignore[assignment,method-assign]
    EpochWriter.__call__ = written  # type: ignore[assignment,method-assign]
    _Events.__init__ = events_made  # type: ignore[assignment,method-assign]
    _Events.onQueryTerminated = ended  # type: ignore[assignment,method-assign]


def _lanes(words: Sequence[str]) -> list[Lane]:
    begins = [number for number, word in enumerate(words) if word == MARK]
    parts = [words[begin + 1 : end] for begin, end in zip(begins, [*begins[1:], len(words)], strict=True)]
    return [Lane(point, driver.parsed(arguments)) for point, *arguments in parts]


if __name__ == "__main__":
    sys.exit(main(_lanes(sys.argv[1:])))
