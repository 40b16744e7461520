"""A proxy on loopback that carries a statement to the server and drops the connection instead of its answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from epochal.testing.servers import PostgresServer

COMMIT = b"COMMIT\0"


class AnswerCutter:
    """In front of one server. `cut` of the next commits are carried out, and their answers are lost."""

    def __init__(self, server: PostgresServer) -> None:
        self._to = (server.hosts[0], server.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.cut = 0  # how many commits are still to be cut
        self.pass_first = 0  # after so many that pass
        self.lost = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._links: list[_Link] = []
        self._accepting = threading.Thread(target=self._accept, name="cutter")

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        for link in self._links:
            link.close()
        for thread in self._threads:
            thread.join()

    def takes_one(self) -> bool:
        """Whether the commit that comes now is one of those."""
        with self._lock:
            if self.cut and self.pass_first:
                self.pass_first -= 1
                return False
            self.cut -= (taken := self.cut > 0)
            return taken

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            link = _Link(self, client, socket.create_connection(self._to))
            self._links.append(link)
            for pump in (link.to_server, link.to_client):
                thread = threading.Thread(target=pump, name="cutter")
                self._threads.append(thread)
                thread.start()


class _Link:
    """One connection and its two directions."""

    def __init__(self, cutter: AnswerCutter, client: socket.socket, server: socket.socket) -> None:
        self._cutter, self._client, self._server = cutter, client, server
        self._is_cut = False

    def to_server(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(65_536):
                if COMMIT in data:
                    self._is_cut = self._cutter.takes_one()
                self._server.sendall(data)
        self.close()

    def to_client(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65_536):
                if self._is_cut:  # so the server has carried it out
                    self._cutter.lost += 1
                    break
                self._client.sendall(data)
        self.close()

    def close(self) -> None:
        """End both directions."""
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
