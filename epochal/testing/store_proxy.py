"""A proxy on loopback in front of an object store: it counts requests, and it fails at random, repeatably.

    with servers.s3() as store, StoreProxy(store.endpoint, Faults(lost=0.1, refused=0.1), seed=7) as proxy:
        files, path = open_files(f"{store.url}/journal", {**store.options, "endpoint": proxy.endpoint})

It runs in threads of this process. Each fault is one that real stores and networks have.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

CONFLICT, UNAVAILABLE = 409, 503
REFUSALS = (UNAVAILABLE, UNAVAILABLE, 429, 500, CONFLICT)
HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})
TIMEOUT = 30.0  # seconds
# Of S3, Google and Azure.
COPY_SOURCES = frozenset({"x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"})
CONDITIONS = frozenset({"if-none-match", "x-goog-if-generation-match"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each fault happens, from 0 to 1."""

    lost: float = 0.0  # carried out, and the connection closes without an answer
    failed: float = 0.0  # carried out, and answered 500
    refused: float = 0.0  # not carried out, and answered with one of `refusals`
    late: float = 0.0  # of PUT: the connection closes at once, and it is carried out some time later
    slow: float = 0.0  # answered after a pause
    pause: float = 0.02  # seconds at most
    read_conflicts: bool = True  # whether reads are answered 409 too; by S3 they are not
    refusals: Sequence[int] = REFUSALS

    def draw(self, chance: random.Random, method: str) -> str:
        """The fault of one request; empty for none."""
        kinds = {"lost": self.lost, "failed": self.failed, "refused": self.refused, "late": self.late}
        left = chance.random()
        for kind, share in {**kinds, "slow": self.slow}.items():
            if left < share:
                return "" if kind == "late" and method != "PUT" else kind
            left -= share
        return ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """What it asks for, by the words of S3's price list.

        >>> Request("GET", "/b?list-type=2&prefix=a%2F", {}, b"").kind, Request("POST", "/b?delete", {}, b"").kind
        ('LIST', 'DELETE many')
        """
        asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if self.method == "GET" and ("list-type" in asked or asked.get("comp") == ["list"]):
            return "LIST"
        if self.method == "POST" and ("delete" in asked or asked.get("comp") == ["batch"]):
            return "DELETE many"
        if self.method == "PUT" and any(name.lower() in COPY_SOURCES for name in self.headers):
            return "COPY"
        return self.method


class StoreProxy:
    """Passes requests on to one endpoint. `requests` and `injected` say how many of each kind there were."""

    def __init__(
        self,
        upstream: str,
        faults: Faults | None = None,
        *,
        seed: int = 0,
        ignores_conditions: bool = False,
        conditional_copies: bool = False,
    ) -> None:
        """With `ignores_conditions` it is the front of a store that overwrites whatever there is.

        With `conditional_copies` it keeps the condition of copies for a store that does not, if all writes pass it.
        """
        self.requests: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.faults = faults or Faults()
        parts = urlsplit(upstream)
        self._upstream = parts.hostname or "", parts.port or 80
        self._ignores_conditions, self._conditional_copies = ignores_conditions, conditional_copies
        self._writing = threading.Lock()
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._late: list[threading.Thread] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="epochal-proxy")

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def settle(self) -> None:
        """Wait until what is late has been carried out."""
        while True:
            with self._lock:
                late, self._late = self._late, []
            if not late:
                return
            for thread in late:
                thread.join()

    def answer(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Status, headers and body; None to close the connection instead."""
        with self._lock:
            fault = self.faults.draw(self._chance, request.method)
            pause, status = self._chance.random() * self.faults.pause, self._chance.choice(self.faults.refusals)
            if status == CONFLICT and request.method in ("GET", "HEAD") and not self.faults.read_conflicts:
                status = UNAVAILABLE
            self.requests[request.kind] += 1
            if fault:
                self.injected[f"{fault} {status}" if fault == "refused" else fault] += 1
        match fault:
            case "refused":
                return _error(status)
            case "late":
                thread = threading.Thread(target=self._pass_on_later, args=(request, pause), name="epochal-late")
                with self._lock:
                    self._late.append(thread)
                    thread.start()
                return None
            case "slow":
                time.sleep(pause)
        answered = self._carry_out(request)
        if fault == "lost":
            return None
        return _error(500) if fault == "failed" else answered

    def _pass_on_later(self, request: Request, pause: float) -> None:
        time.sleep(pause)
        self._carry_out(request)

    def _carry_out(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        if not self._conditional_copies or request.method != "PUT":
            return self._pass_on(request)
        with self._writing:
            has_condition = any(name.lower() in CONDITIONS for name in request.headers)
            if request.kind == "COPY" and has_condition:
                signed = {name: value for name, value in request.headers.items() if name.lower() == "authorization"}
                if self._pass_on(Request("HEAD", request.path, signed, b""))[0] != 404:
                    return _error(412)
            return self._pass_on(request)

    def _pass_on(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        if self._ignores_conditions:
            headers = {name: value for name, value in headers.items() if name.lower() not in CONDITIONS}
        return self.ask(Request(request.method, request.path, headers, request.body))

    def ask(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the endpoint answers to a request as it is."""
        connection = http.client.HTTPConnection(*self._upstream, timeout=TIMEOUT)
        try:
            connection.request(request.method, request.path, request.body or None, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException):
            return _error(502)
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: StoreProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients hang up, too."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: a second one would wait 40 ms for the client's acknowledgement

    def handle_expect_100(self) -> bool:
        """Let the client send the body now: it waits for this."""
        sent = super().handle_expect_100()
        self.wfile.flush()
        return sent

    def do_any(self) -> None:
        assert isinstance(self.server, _Server)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
        answer = self.server.proxy.answer(request)
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP:
                self.send_header(name, value)
        # The answer to HEAD has the length of what it does not send.
        own = next((value for name, value in headers if name.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", own if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815  # the names are http.server's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


def _error(status: int) -> tuple[int, list[tuple[str, str]], bytes]:
    return status, [], f"<Error><Code>Injected{status}</Code></Error>".encode()
