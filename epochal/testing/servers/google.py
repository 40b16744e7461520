"""A store that speaks Google's protocol: fake-gcs-server, which Go's tool chain builds once. Its data is in memory.

It keeps conditions of uploads by Google's JSON protocol. Clients such as obstore put by the XML protocol, which it has
for reading alone: a front in this process makes the one request of the other. It keeps no state, and nothing of what
it passes on. Copies overwrite, because the server does not know their condition.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from functools import partial
from urllib.parse import quote, unquote, urlencode, urlsplit

from epochal.testing.servers import go_programs
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.ports import TIMEOUT, free_port
from epochal.testing.servers.routes import Route
from epochal.testing.servers.store_server import StoreServer
from epochal.testing.servers.supervisor import Supervisor
from epochal.testing.store_proxy import Request, StoreProxy

HOST = "127.0.0.1"
TOKEN = "any-will-do"
CONDITION, SOURCE = "x-goog-if-generation-match", "x-goog-copy-source"
UPLOADED = ("etag", "generation")  # what a client is told of a new object, in the answer by JSON


class GoogleStore(StoreServer):
    """`url` is the bucket, ``gs://epochal``. It takes any token; clients insist on having one."""

    scheme = "gs"

    @property
    def environment(self) -> dict[str, str]:
        return {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_BEARER_TOKEN": TOKEN}

    def options_at(self, endpoint: str) -> dict[str, str]:
        return {"base_url": endpoint, "bearer_token": TOKEN}


class FakeGcs(LocalProcess):
    """Ready once it has made the bucket."""

    port = 0
    bucket = ""

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        made = (http.client.OK, http.client.CONFLICT)
        self.wait_until(lambda: self._make_bucket() in made)

    def _make_bucket(self) -> int | None:
        """The status that the server answers with; None if it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT)
        try:
            body = json.dumps({"name": self.bucket})
            connection.request("POST", "/storage/v1/b?project=epochal", body, {"Content-Type": "application/json"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Front(StoreProxy):
    """Passes requests on, with puts as the server knows them."""

    def ask(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        if request.method != "PUT":
            return super().ask(request)
        heads = {name.lower(): value for name, value in request.headers.items()}
        bucket, _, key = unquote(urlsplit(request.path).path).lstrip("/").partition("/")
        condition = {"ifGenerationMatch": heads.pop(CONDITION)} if CONDITION in heads else {}
        source = heads.pop(SOURCE, None)
        if source is None:
            asked = urlencode({"uploadType": "media", "name": key, **condition})
            path, body = f"/upload/storage/v1/b/{bucket}/o?{asked}", request.body
        else:
            there = "/o/".join(quote(part, safe="") for part in unquote(source).lstrip("/").split("/", 1))
            path = f"/storage/v1/b/{there}/rewriteTo/b/{bucket}/o/{quote(key, safe='')}?{urlencode(condition)}"
            body = b""
        status, _, answer = super().ask(Request("POST", path, heads, body))
        if status != http.client.OK:
            return status, [], answer
        made = json.loads(answer)
        made = made.get("resource", made)
        etag, generation = (str(made[name]) for name in UPLOADED)
        return status, [("ETag", f'"{etag}"'), ("x-goog-generation", generation)], b""


def start(bucket: str = "epochal", *, timeout: float = 120.0, tell: Callable[[str], None] | None = None) -> GoogleStore:
    """The server on 127.0.0.1, ready to use, with an empty bucket. The first call builds it."""
    program = go_programs.built(go_programs.FAKE_GCS, tell)
    supervisor = Supervisor(None)
    try:
        home, port = supervisor.folder, free_port([HOST])
        place = f"{HOST}:{port}"
        settings = ["-backend", "memory", "-scheme", "http", "-host", HOST, "-port", str(port), "-log-level", "error"]
        # Else it answers only those that ask for storage.googleapis.com.
        command = [str(program), *settings, "-public-host", HOST, "-external-url", f"http://{place}"]
        server = FakeGcs(supervisor, f"Google's store on {place}", command, home, home / "log", timeout=timeout)
        server.port, server.bucket = port, bucket
        server.start()
        front = Front(f"http://{place}").__enter__()
    except BaseException:
        supervisor.end()
        raise
    end = partial(end_all, supervisor, [server], in_order=False)

    def end_both() -> None:
        front.__exit__(None, None, None)
        end()

    return GoogleStore([server], front.endpoint, bucket, route=Route.LOCAL, end=end_both, timeout=timeout)
