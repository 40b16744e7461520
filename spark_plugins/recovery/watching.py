"""Watches how long a recovery would take while a stream runs, and says so when it misses the objective.

In a thread of its own, which reads the checkpoint's files at most every `PAUSE` seconds and for at most a twentieth of
the time: an epoch never waits for it, and its failures stop nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.model import predicted
from epochal.spark_plugins.recovery.reading import has_state, read_state
from epochal.spark_plugins.recovery.states import Rows, SparkState, total
from epochal.txn.errors import EpochalError
from epochal.txn.events import Observers, RecoveryMeasured
from epochal.txn.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

PAUSE = 10.0  # seconds between two readings, at least
SHARE = 0.05  # of the time


class RecoveryWatch:
    """Emits `RecoveryMeasured` for one run of a query."""

    def __init__(
        self,
        files: Files,
        checkpoint: str,
        objective: float,
        observers: Observers,
        lineage: str,
        *,
        slots: int | None = None,
        rows: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._checkpoint, self._objective = files, checkpoint, objective
        self._observers, self._lineage = observers, lineage
        self._slots, self._clock = slots or os.cpu_count() or 1, clock
        self._rates, self._rows = kept.load(), rows
        self._was_late = False
        self._last: int | None = None  # the epoch that was measured last
        self._failed = False
        self._stopping = threading.Event()

    def start(self) -> None:
        """Measure in the background from now on."""
        threading.Thread(target=self._loop, name="epochal-recovery", daemon=True).start()

    def stop(self) -> None:
        """Measure no more."""
        self._stopping.set()

    def _loop(self) -> None:
        pause = PAUSE
        while not self._stopping.wait(pause):
            begun = self._clock()
            self.look()
            pause = max(PAUSE, (self._clock() - begun) / SHARE)

    def look(self) -> None:
        """Measure once. A checkpoint that cannot be read is logged once."""
        try:
            if not has_state(self._files, self._checkpoint):
                return
            state = read_state(self._files, self._checkpoint, counted=0)
        except (EpochalError, OSError, Py4JError) as fault:
            if not self._stopping.is_set():
                level = logging.DEBUG if self._failed else logging.WARNING
                self._failed = True
                log.log(level, "the state of Spark's operators could not be read for recovery_objective: %s", fault)
            return
        if state.epoch != self._last:
            self._last = state.epoch
            self._report(state)

    def _report(self, state: SparkState) -> None:
        counted: Rows | None = total([operator.rows for operator in state.operators])
        rows = counted.count if counted is not None and counted.exact else self._rows()
        if rows is None and counted is not None:
            rows = counted.count
        seconds = predicted(state, self._rates, slots=self._slots).total
        late = seconds > self._objective
        turned, self._was_late = late != self._was_late, late
        self._observers.emit(
            RecoveryMeasured(
                lineage=self._lineage,
                stream=self._observers.stream,
                at=self._observers.now(),
                epoch=state.epoch,
                seconds=round(seconds, 3),
                objective=self._objective,
                extent=state.extent,
                rows=rows,
                bytes=state.bytes,
                turned=turned,
            )
        )


def rows_by_progress(session: SparkSession, query_id: str) -> int | None:
    """The rows that operators keep by Spark's last progress of a query; None if it says nothing."""
    jsession: Any = session._jsparkSession
    try:
        query = jsession.streams().get(query_id)
        progress = None if query is None else query.lastProgress()
        operators = () if progress is None else progress.stateOperators()
        return sum(int(operator.numRowsTotal()) for operator in operators) if operators else None
    except Py4JError as fault:
        log.debug("progress not read", extra={"error": repr(fault)})
        return None
