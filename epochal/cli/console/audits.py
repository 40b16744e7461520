"""Fast audits at the user's request: one at a time, in a thread, the last result of each stream kept in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from epochal.cli import audit
from epochal.cli.console.model import JsonObject
from epochal.cli.streams import open_stream

RunAudit = Callable[[str], JsonObject]


def fast_audit(checkpoint: str, journal: str | None) -> JsonObject:
    """The result of ``epochal audit --fast`` as JSON, with the time and how long it took. Reads only."""
    began = time.monotonic()
    stream = open_stream(checkpoint, journal)
    result: dict[str, Any] = dict(audit.to_json(audit.audit(stream, fast=True, progress=lambda _: None)))
    return result | {"at": time.time(), "seconds": time.monotonic() - began, "fast": True}


class Audits:
    """The audits of a server. A result is ``{"state": "running" | "done" | "failed", ...}``."""

    def __init__(self, run: RunAudit) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._running = threading.Lock()  # held by the one audit that runs
        self._results: dict[str, JsonObject] = {}

    def start(self, checkpoint: str) -> JsonObject:
        """Begin an audit, unless one of this stream is under way. Returns its state."""
        with self._lock:
            now = self._results.get(checkpoint)
            if now is None or now["state"] != "running":
                now = {"state": "running", "since": time.time()}
                self._results[checkpoint] = now
                threading.Thread(target=self._audit, args=(checkpoint,), name="audit", daemon=True).start()
            return dict(now)

    def last(self, checkpoint: str) -> JsonObject | None:
        """The state of the last audit of a stream; None if there was none."""
        with self._lock:
            return self._results.get(checkpoint)

    def _audit(self, checkpoint: str) -> None:
        with self._running:
            try:
                result: JsonObject = {"state": "done", "result": self._run(checkpoint)}
            except Exception as fault:  # noqa: BLE001  # whatever it is, the page shows it
                result = {"state": "failed", "error": str(fault) or type(fault).__name__, "at": time.time()}
        with self._lock:
            self._results[checkpoint] = result
