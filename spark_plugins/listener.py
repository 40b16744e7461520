"""Listens for a query's progress and end.

PySpark's own StreamingQueryListener converts each event to Python field by field, through py4j: with 20
small epochs this took a third of all CPU time. This one implements the same JVM interface and reads
nothing of a progress event. It only wakes the settler, which needs one listing to see that there is nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

WRAPPER = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"


class Listener:
    """Calls `on_progress` for any query of the session, and `on_end` for one run. Both must return at once.

    `on_end` gets the text of the error that ended the query, or None.
    """

    def __init__(
        self,
        session: SparkSession,
        run_id: str,
        *,
        on_progress: Callable[[], None],
        on_end: Callable[[str | None], None],
    ) -> None:
        gateway: Any = session.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # PySpark does not type it
        self._events = _Events(run_id, on_progress, on_end)
        wrapper: Any = gateway.jvm
        for name in WRAPPER.split("."):
            wrapper = getattr(wrapper, name)
        self._listener: Any = wrapper(self._events)
        self._streams: Any = session.streams._jsqm
        self._streams.addListener(self._listener)

    def expect(self, epoch: int) -> None:
        """Nothing: Spark tells when an epoch is checkpointed."""

    def remove(self) -> None:
        """Stop listening. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                self._streams.removeListener(listener)
            except (Py4JError, OSError) as fault:  # the JVM is gone, and the listener with it
                log.debug("listener not removed", extra={"error": repr(fault)})


class _Events:
    """The object that the JVM calls."""

    def __init__(self, run_id: str, on_progress: Callable[[], None], on_end: Callable[[str | None], None]) -> None:
        self._run_id, self._on_progress, self._on_end = run_id, on_progress, on_end

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: ARG002, N802  # Spark's name
        self._on_progress()

    def onQueryIdle(self, event: Any) -> None:  # noqa: ARG002, N802  # Spark's name
        self._on_progress()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
        if str(event.runId().toString()) == self._run_id:
            fault = event.exception()
            self._on_end(str(fault.get()) if fault.isDefined() else None)

    class Java:
        """The interface that this class implements in the JVM."""

        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]  # noqa: RUF012  # py4j's way
