"""SIGTERM and Ctrl-C, wherever they arrive: in Python, or in the JVM that spark-submit has made its parent.

Without this the JVM would exit at once, and the last epochs would wait for the next start. A terminal, systemd and
Kubernetes send their signals to all processes, or to the JVM alone.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

STOPPING = (signal.SIGTERM, signal.SIGINT)


class _JavaHandler:
    """What Java's runtime calls when the JVM gets a signal."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop

    def handle(self, received: Any) -> None:
        self._stop(f"SIG{received.getName()}")

    class Java:
        implements = ("sun.misc.SignalHandler",)


@contextmanager
def stopping_by(spark: SparkSession, stop: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, `stop` is called with the name of a signal instead of what the signal would do."""

    def handle(number: int, _: FrameType | None) -> None:
        stop(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in STOPPING}
    undo = _in_the_jvm(spark, stop)
    try:
        yield
    finally:
        undo()
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_the_jvm(spark: SparkSession, stop: Callable[[str], None]) -> Callable[[], None]:
    """The same in Spark's JVM; returns how to undo it."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    handler = _JavaHandler(stop)
    previous = []
    try:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark has no type for it
        for number in STOPPING:
            name = jvm.sun.misc.Signal(number.name.removeprefix("SIG"))
            previous.append((name, jvm.sun.misc.Signal.handle(name, handler)))
    except Py4JError as fault:  # java -Xrs: signals are left to the system
        log.warning("signals that only Spark's JVM gets end it at once: %s", fault)

    def undo() -> None:
        try:
            for name, old in previous:
                jvm.sun.misc.Signal.handle(name, old)
        except (Py4JError, OSError) as fault:
            log.debug("signals of the JVM were not restored", extra={"error": repr(fault)})

    return undo
