"""A store that speaks Azure's protocol for blobs: Azurite, Microsoft's emulator, which node runs.

Its data is in memory: a restart empties it, and what it has on disk would lag behind its answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import secrets
from collections.abc import Callable
from email.utils import formatdate
from functools import partial

from epochal.testing.servers import node_programs
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.ports import TIMEOUT, free_port
from epochal.testing.servers.routes import Route
from epochal.testing.servers.store_server import StoreServer
from epochal.testing.servers.supervisor import Supervisor

HOST = "127.0.0.1"
ACCOUNT = "epochal"
VERSION = "2021-08-06"  # of the protocol, for the one request that is made here


class AzureStore(StoreServer):
    """`url` is the container, ``az://epochal``."""

    scheme = "az"
    key = ""

    @property
    def listing(self) -> str:
        return f"/{ACCOUNT}/{self.bucket}?restype=container&comp=list"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{ACCOUNT}",
        }

    def options_at(self, endpoint: str) -> dict[str, str]:
        return {"account_name": ACCOUNT, "account_key": self.key, "endpoint": f"{endpoint}/{ACCOUNT}"}


class Azurite(LocalProcess):
    """Ready once it has made the container."""

    port = 0
    container = ""
    key = ""

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        made = (http.client.CREATED, http.client.CONFLICT)
        self.wait_until(lambda: self._make_container() in made)

    def _make_container(self) -> int | None:
        """The status that the server answers with; None if it does not answer."""
        heads = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in heads.items())
        signed += f"/{ACCOUNT}/{ACCOUNT}/{self.container}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.key), signed.encode(), hashlib.sha256).digest()
        heads |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT)
        try:
            connection.request("PUT", f"/{ACCOUNT}/{self.container}?restype=container", headers=heads)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def start(
    container: str = "epochal", *, timeout: float = 120.0, tell: Callable[[str], None] | None = None
) -> AzureStore:
    """Azurite on 127.0.0.1, ready to use, with an empty container. The first call fetches it by npm."""
    node = node_programs.find_node()
    if node is None:
        raise ServerFailed("Azurite is run by node, which is not in PATH. Install it")
    program = node_programs.fetched(node_programs.AZURITE, tell)
    supervisor = Supervisor(None)
    try:
        home, port = supervisor.folder, free_port([HOST])
        # --disableTelemetry: else it reports each start to its makers.
        settings = ["--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
        settings += ["--disableTelemetry", "--skipApiVersionCheck"]
        command = [node, str(program), *settings]
        server = Azurite(supervisor, f"Azure on {HOST}:{port}", command, home, home / "log", timeout=timeout)
        server.port, server.container = port, container
        server.key = base64.b64encode(secrets.token_bytes(64)).decode()
        server.variables = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{server.key}"}
        server.start()
    except BaseException:
        supervisor.end()
        raise
    store = AzureStore(
        [server],
        f"http://{HOST}:{port}",
        container,
        route=Route.LOCAL,
        end=partial(end_all, supervisor, [server], in_order=False),
        timeout=timeout,
    )
    store.key = server.key
    return store
