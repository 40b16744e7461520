"""A server that the user runs: tests can connect to it, but not control it."""

from __future__ import annotations

from typing import NoReturn

from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.ports import listens
from epochal.testing.servers.routes import Endpoint
from epochal.testing.servers.waiting import wait_until


def connect(title: str, variable: str, endpoint: Endpoint, patience: float) -> list[GivenNode]:
    """The servers that an environment variable names, as soon as one of them accepts connections."""
    wait_until(
        lambda: any(listens(host, endpoint.port) for host in endpoint.hosts),
        patience,
        lambda: f"nothing listens at {variable}={','.join(endpoint.hosts)}:{endpoint.port}",
    )
    return [GivenNode(title, variable, host, endpoint.port) for host in endpoint.hosts]


class GivenNode:
    """One of them."""

    def __init__(self, title: str, variable: str, host: str, port: int) -> None:
        self._title, self._variable = title, variable
        self._host, self._port = host, port

    @property
    def name(self) -> str:
        return f"{self._title} on {self._host}:{self._port}"

    @property
    def host(self) -> str:
        return self._host

    @property
    def pid(self) -> int:
        self._refuse()

    @property
    def running(self) -> bool:
        return listens(self._host, self._port)

    def start(self) -> None:
        self._refuse()

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        self._refuse()

    def log_tail(self) -> str:
        return ""

    def _refuse(self) -> NoReturn:
        raise ServerFailed(
            f"{self._host}:{self._port} was given by {self._variable}; only servers that epochal started can be "
            "stopped, killed or paused: ask for one with own=True"
        )
