"""The server of ``epochal ui``: on 127.0.0.1 only, reads only.

===========================  ==========================================================================
``GET /``                    the page
``GET /api/streams``         the newest reading of every stream, as JSON
``POST /api/audit/N``        begin a fast audit of the Nth stream; only from the page itself
===========================  ==========================================================================

A page of another site cannot use it: the Host header must name this server (DNS rebinding), and the audit must come
with the server's own Origin and a header that no form can send.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from epochal.cli.console.audits import Audits
from epochal.cli.console.model import JsonObject
from epochal.cli.console.page import document, policy
from epochal.cli.console.watch import Watched, latest_of

HOST = "127.0.0.1"
PATIENCE = 5.0  # seconds that a request waits for a reading
AUDIT_HEADER = "X-Epochal"
DIGITS = 9  # of the number of a stream


class ConsoleServer(ThreadingHTTPServer):
    """Serves the page for some streams."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, streams: Sequence[Watched], audits: Audits) -> None:
        self.streams = tuple(streams)
        self.audits = audits
        super().__init__((HOST, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    @property
    def own_names(self) -> frozenset[str]:
        """The Host headers of requests that are meant for this server."""
        return frozenset({f"{HOST}:{self.port}", f"localhost:{self.port}"})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client is gone, most often: no trace on the terminal. Anything else is a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def data(self) -> JsonObject:
        """Everything that the page shows."""
        streams = [
            {**reading.to_json(), "audit": self.audits.last(reading.checkpoint)}
            for reading in latest_of(self.streams, wait=PATIENCE)
        ]
        return {"at": time.time(), "streams": streams}


class _Handler(BaseHTTPRequestHandler):
    server: ConsoleServer
    server_version = "epochal"
    sys_version = ""
    timeout = 30  # a client that sends nothing does not keep a thread

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        match self.path.partition("?")[0]:
            case "/":
                self._answer(HTTPStatus.OK, document(self.server.data(), live=True).encode(), "text/html")
            case "/api/streams":
                self._json(HTTPStatus.OK, self.server.data())
            case _:
                self._error(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        if not self._is_for_us():
            return
        prefix, _, number = self.path.rpartition("/")
        if prefix != "/api/audit":
            self._error(HTTPStatus.METHOD_NOT_ALLOWED, "only an audit is started by POST")
        elif not self._comes_from_the_page():
            self._error(HTTPStatus.FORBIDDEN, "an audit is started from the page itself")
        elif not (number.isascii() and number.isdecimal()) or len(number) > DIGITS:
            self._error(HTTPStatus.BAD_REQUEST, "an audit is of the stream with a number: /api/audit/0")
        elif int(number) >= len(self.server.streams):
            self._error(HTTPStatus.NOT_FOUND, f"there is no stream {number}")
        else:
            stream = self.server.streams[int(number)]
            self._json(HTTPStatus.ACCEPTED, self.server.audits.start(stream.checkpoint))

    def _is_for_us(self) -> bool:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and hosts[0] in self.server.own_names:
            return True
        self._error(HTTPStatus.MISDIRECTED_REQUEST, f"open {self.server.url}")
        return False

    def _comes_from_the_page(self) -> bool:
        origins = {f"http://{name}" for name in self.server.own_names}
        return self.headers.get("Origin") in origins and self.headers.get(AUDIT_HEADER) == "audit"

    def _json(self, status: HTTPStatus, data: JsonObject) -> None:
        self._answer(status, json.dumps(data).encode(), "application/json")

    def _error(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # a body may follow that nobody reads
        self._json(status, {"error": message})

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing: the terminal is for people."""
