"""The server of ``epochal ui`` in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epochal.cli.console.audits import Audits, fast_audit
from epochal.cli.console.server import ConsoleServer
from epochal.cli.console.watch import watch


@contextmanager
def serving(*checkpoints: Path) -> Iterator[ConsoleServer]:
    """A server for some streams, on a free port."""
    streams = watch([str(checkpoint) for checkpoint in checkpoints], None)
    with ConsoleServer(0, streams, Audits(lambda one: fast_audit(one, None))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
