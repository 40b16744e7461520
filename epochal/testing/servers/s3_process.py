"""What the servers that are an object store have in common, as processes of the supervisor."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from epochal.testing.servers.local_process import LocalProcess
from epochal.testing.servers.ports import TIMEOUT

HOST = "127.0.0.1"


class S3Process(LocalProcess):
    """One store with one bucket."""

    port = 0
    bucket = ""
    credentials: Mapping[str, str] = {}  # the variables by which clients are let in

    @property
    def host(self) -> str:
        return HOST

    def asked(self, method: str, path: str) -> int | None:
        """The status that the server answers with; None if it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
