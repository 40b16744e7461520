"""``epochal ui``: the page on 127.0.0.1, until Ctrl-C."""

from __future__ import annotations

import errno
import json
import signal
import sys
from collections.abc import Callable, Sequence

from epochal.cli.console.audits import Audits, fast_audit
from epochal.cli.console.server import ConsoleServer
from epochal.cli.console.watch import watch
from epochal.txn.errors import Refused

PORT = 4180


def run(checkpoints: Sequence[str], journal: str | None, *, port: int | None, as_json: bool) -> int:
    """Serve until Ctrl-C or SIGTERM. Without a port, the usual one or a free one."""
    streams = watch(checkpoints, journal)
    with _listen(port, lambda at: ConsoleServer(at, streams, Audits(lambda one: fast_audit(one, journal)))) as server:
        signals = (signal.SIGTERM, signal.SIGINT)
        # As in `epochal serve`: a shell starts background jobs with SIGINT ignored.
        previous = {number: signal.signal(number, signal.default_int_handler) for number in signals}
        try:
            print(json.dumps({"url": server.url}) if as_json else f"epochal ui: {server.url}", flush=True)
            print("Ctrl-C ends it", file=sys.stderr)
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    return 0


def _listen(port: int | None, start: Callable[[int], ConsoleServer]) -> ConsoleServer:
    try:
        return start(PORT if port is None else port)
    except OSError as fault:
        if fault.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        if port is not None:
            raise Refused(
                f"port {port} of 127.0.0.1: {fault.strerror}. Choose another one, or leave out --port"
            ) from None
        return start(0)
