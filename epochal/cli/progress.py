"""One line of progress on a terminal, for what takes a while. Elsewhere a line now and then, of what takes long.

::

    with progress.task("auditing") as say:
        say("lake: counting rows")

The line shows the text, how many tasks of Spark's current job are done, and the time. It appears after a moment, so
that quick commands show none, and is removed before anything else is printed. In a file or a pipe nothing can be
removed: there a line is printed after ten seconds, and after every minute.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from epochal.txn.durations import lasting
from epochal.txn.printable import printable

DELAY = 0.3  # seconds until the line appears
INTERVAL = 0.2
LATE, AGAIN = 10.0, 60.0  # seconds until a line is printed where there is no terminal, and until the next one
WIDE = 1000  # characters of such a line
BAR = 20  # characters
TURNS = "|/-\\"

Tasks = Callable[[], tuple[int, int] | None]


def line(text: str, seconds: float, tasks: tuple[int, int] | None, *, turn: str = "|", width: int = 80) -> str:
    """The line, no longer than a terminal is wide.

    >>> line("lake: counting rows", 12, (3, 12))
    '| lake: counting rows [#####---------------] 3 of 12 tasks, 12 s'
    >>> line("starting Spark to reach hdfs://namenode/checkpoints", 2, None, width=30)
    '| starting Spark to reach hd…'
    """
    bar = ""
    if tasks is not None and tasks[1]:
        done, total = tasks
        full = BAR * done // total
        bar = f" [{'#' * full}{'-' * (BAR - full)}] {done} of {total} tasks"
    shown = printable(f"{turn} {text}{bar}, {lasting(seconds)}", keep="")
    return shown if len(shown) < width else f"{shown[: width - 2]}…"


def spark_tasks() -> tuple[int, int] | None:
    """How many tasks of the stages that run now are done; None if Spark does nothing or is not loaded."""
    module = sys.modules.get("pyspark")
    context = None if module is None else getattr(module, "SparkContext", None)
    active = None if context is None else context._active_spark_context
    if active is None:
        return None
    tracker = active.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return (sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)) if stages else None


class Display:
    """Shows the line from a thread of its own, as long as there is a task."""

    def __init__(
        self, stream: TextIO, *, tasks: Tasks = spark_tasks, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._tasks, self._clock = stream, tasks, clock
        self._is_terminal = stream.isatty()
        self._texts: list[list[str]] = []  # of the tasks that are under way, the innermost last
        self._began = 0.0
        self._drawn = False
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def task(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a text until the end of the block."""
        mine = [text]
        with self._lock:
            self._texts.append(mine)
            if len(self._texts) == 1:
                self._began = self._clock()
                self._idle.clear()
                self._thread = threading.Thread(target=self._draw_all, name="epochal-progress", daemon=True)
                self._thread.start()
        try:
            yield lambda changed: mine.__setitem__(0, changed)
        finally:
            with self._lock:
                self._texts.remove(mine)
            if not self._texts:
                self._idle.set()
                if self._thread is not None:
                    self._thread.join()
                self.clear()

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._drawn:
                self._stream.write("\r\033[K")
                self._stream.flush()
                self._drawn = False

    def _draw_all(self) -> None:
        turns = itertools.cycle(TURNS)
        pause, then = (DELAY, INTERVAL) if self._is_terminal else (LATE, AGAIN)
        while not self._idle.wait(pause):
            pause = then
            try:
                tasks = self._tasks()
            except Exception:  # noqa: BLE001  # Spark may be starting or stopping: the line is only for show
                tasks = None
            with self._lock:
                if self._texts:
                    text, seconds = self._texts[-1][0], self._clock() - self._began
                    if self._is_terminal:
                        width = shutil.get_terminal_size().columns
                        self._stream.write(f"\r\033[K{line(text, seconds, tasks, turn=next(turns), width=width)}")
                        self._drawn = True
                    else:
                        self._stream.write(f"{line(text, seconds, tasks, turn='epochal:', width=WIDE)}\n")
                    self._stream.flush()


_display: Display | None = None


@contextmanager
def shown(stream: TextIO | None) -> Iterator[None]:
    """Show progress on this stream in the block; on none if it is None."""
    global _display
    before, _display = _display, Display(stream) if stream is not None else None
    try:
        yield
    finally:
        _display = before


@contextmanager
def task(text: str) -> Iterator[Callable[[str], None]]:
    """Show a text until the end of the block. The function that it gives changes the text."""
    if _display is None:
        yield lambda _: None
        return
    with _display.task(text) as say:
        yield say


def clear() -> None:
    """Remove the line: something else is printed now."""
    if _display is not None:
        _display.clear()
