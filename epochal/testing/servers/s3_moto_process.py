"""The process of `servers.s3`: moto's server, one request at a time.

    python -P s3_moto_process.py HOST PORT

Its threads look for an object and then make it. A lock around each request makes that one step, so that a condition
has one winner as on a real store. Its data is in memory.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Start = Callable[..., Any]


class Handler(WSGIRequestHandler):  # type: ignore[misc,unused-ignore]  # where werkzeug is not installed
    """Keeps connections open, and is silent about requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the client's acknowledgement of the head

    def handle_expect_100(self) -> bool:
        """Nothing: werkzeug says itself that the client may send. Amazon's SDK takes a second 100 for the answer."""
        return True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: thousands of lines would hide an error."""


def serial(application: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> Callable[[dict[str, Any], Start], Any]:
    """An application that answers one request at a time."""
    lock = threading.Lock()

    def answer(environment: dict[str, Any], start: Start) -> list[bytes]:
        with lock:
            return [*application(environment, start)]

    return answer


def main(host: str, port: int) -> None:
    """Serve until the process is ended."""
    application = serial(DomainDispatcherApplication(create_backend_app))
    make_server(host, port, application, threaded=True, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
