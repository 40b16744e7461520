"""What Spark's JVM prints while a command runs: hidden, but its last lines are kept for the day when it fails."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

log = logging.getLogger("epochal")

LINES = 1000  # that are kept
LENGTH = 4000  # characters of a line
OF_QUERIES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SparkOutput:
    """Takes what a process prints, for as long as it lives, and holds its last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        reading, self.writing = os.pipe()  # `writing` is what the process gets as its stdout and stderr
        self._reader = threading.Thread(target=self._read, args=(reading,), name="epochal-spark-output", daemon=True)
        self._reader.start()

    def _read(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self._lines.append(line.rstrip("\n")[:LENGTH])

    def add(self, text: str) -> None:
        """Lines that belong to it, though another process has printed them."""
        self._lines.extend(line[:LENGTH] for line in text.splitlines())

    def started(self) -> None:
        """The process has its end of the pipe, or will never need it."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def last(self, lines: int, *, within: float = 1.0) -> list[str]:
        """The last lines that are not empty; waits a moment for those that the process has printed just now."""
        self._reader.join(within)
        return [line for line in self._lines if line.strip()][-lines:]

    def saved(self) -> str | None:
        """A file that only this user can read, with the lines that are kept; None if there are none."""
        kept = self.last(LINES, within=0.3)
        if not kept:
            return None
        handle, path = tempfile.mkstemp(prefix="epochal-spark-", suffix=".log")
        with open(handle, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in kept)
        return path


@contextmanager
def hidden() -> Iterator[SparkOutput | None]:
    """Takes the output of the session that the block starts; None, and so the terminal, with ``--verbose``."""
    if log.isEnabledFor(logging.INFO):
        yield None
        return
    output = SparkOutput()
    with ExitStack() as until_the_end:
        until_the_end.callback(output.started)
        for logger in _loggers():
            until_the_end.enter_context(_redirected(logger, _Traces(output)))
        yield output


def _loggers() -> Iterator[logging.Logger]:
    """What Python's side of Spark logs to: traces of batches that fail, and errors in a query once more as JSON."""
    from pyspark.logger import PySparkLogger

    yield logging.getLogger("py4j")
    for name in OF_QUERIES:
        yield PySparkLogger.getLogger(name)  # a plain logger of this name would not take what Spark passes to it


@contextmanager
def _redirected(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Give what a logger gets to this handler alone. Spark's own come with one that prints."""
    before, propagated = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagated


class _Traces(logging.Handler):
    """Keeps what is logged with what Spark prints."""

    def __init__(self, output: SparkOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.add(self.format(record))
