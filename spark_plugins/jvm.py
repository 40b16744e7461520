"""The JVM that runs Spark for this Python process, and whether it still lives.

A driver is two processes. The JVM alone may die: killed for its memory, or by hand. Then no query of it goes on, and
the Python process may not notice for hours if it only waits for something else.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.txn.process import Process, Running, process_here, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

PAUSE = 0.02  # seconds between two looks
CONNECT_TIMEOUT = 5.0  # seconds


class Jvm:
    """The JVM of a session. Created while it lives."""

    def __init__(self, session: SparkSession) -> None:
        gateway: Any = session.sparkContext._gateway
        self._gateway = gateway
        self._address = gateway.gateway_parameters.address, gateway.gateway_parameters.port
        self.process: Process | None = None  # None if unknown; then it is never taken for dead
        try:
            found = process_here(int(gateway.jvm.java.lang.ProcessHandle.current().pid()))
        except Py4JError as fault:
            log.debug("the JVM's process is not known", extra={"error": repr(fault)})
            return
        if running(found) is not Running.NO:  # else it has another table of processes
            self.process = found

    def __str__(self) -> str:
        pid = "" if self.process is None else f" (pid {self.process.pid})"
        return f"Spark's JVM{pid}"

    def is_gone(self, patience: float = 0.0) -> bool:
        """Whether it has ended. It waits so many seconds for a process that is about to end."""
        deadline = time.monotonic() + patience
        while self.process is not None:
            # Both, because the query is given up: its process is not there, and nobody answers in its place.
            if running(self.process) is Running.NO and not self._listens():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE)
        return False

    def answer(self) -> None:
        """Wait until it answers. Py4JError or OSError if it never will; one that hangs keeps the caller waiting."""
        self._gateway.jvm.java.lang.System.nanoTime()

    def _listens(self) -> bool:
        try:
            with socket.create_connection(self._address, timeout=CONNECT_TIMEOUT):
                return True
        except OSError:
            return False
