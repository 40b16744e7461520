"""One Connect server and one client for the tests of this folder; those that kill have their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from integration_tests.connect.clients import Client, client
from integration_tests.connect.server import Server, server


@pytest.fixture(scope="session")
def connect(java_options: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server"), java_options) as started:
        yield started


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture(scope="session")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client that sees no file of the tests."""
    if subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs Linux, and the right to have mounts of one's own: unshare --mount")
    with client(tmp_path_factory.mktemp("far"), away=tmp_path_factory.getbasetemp()) as started:
        yield started
