"""One Connect server and two clients for the tests of this folder. Those that a test kills are started again."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import pytest

from integration_tests.connect.clients import Client, client
from integration_tests.connect.server import Server, server


class Process(Protocol):
    @property
    def is_alive(self) -> bool: ...


Started = TypeVar("Started", bound=Process)


@pytest.fixture(scope="session")
def servers(java_options: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    with _one_at_a_time(lambda: server(tmp_path_factory.mktemp("server"), java_options)) as current:
        yield current


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Client]]:
    with _one_at_a_time(lambda: client(tmp_path_factory.mktemp("client"))) as current:
        yield current


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Client]]:
    away = tmp_path_factory.getbasetemp()
    with _one_at_a_time(lambda: client(tmp_path_factory.mktemp("far"), away=away)) as current:
        yield current


@pytest.fixture
def connect(servers: Callable[[], Server]) -> Iterator[Server]:
    running = servers()
    yield running
    running.arm("")


@pytest.fixture
def user(users: Callable[[], Client]) -> Client:
    return users()


@pytest.fixture
def far(strangers: Callable[[], Client]) -> Client:
    """A client that sees no file of the tests."""
    if subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs Linux, and the right to have mounts of one's own: unshare --mount")
    return strangers()


@contextlib.contextmanager
def _one_at_a_time(start: Callable[[], AbstractContextManager[Started]]) -> Iterator[Callable[[], Started]]:
    """The process that runs, or a new one if there is none."""
    with contextlib.ExitStack() as started:
        running: list[Started] = []

        def current() -> Started:
            if not (running and running[-1].is_alive):
                running.append(started.enter_context(start()))
            return running[-1]

        yield current
