"""Which of the object stores a test can run on."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from epochal.testing.servers import go_programs, node_programs
from epochal.testing.servers.go_programs import GoProgram
from epochal.testing.servers.store_server import StoreServer


def skip_without_versitygw(*, may_build: bool = True) -> None:
    """Skip the test where the server can be had neither from the cache nor by building it."""
    _skip_without(go_programs.VERSITYGW, "`epochal serve s3 --server versitygw` does it once" if not may_build else "")


def skip_without_fake_gcs(*, may_build: bool = True) -> None:
    _skip_without(go_programs.FAKE_GCS, "" if may_build else "tests with the mark `matrix` do it once")


def _skip_without(program: GoProgram, how_else: str) -> None:
    if program.path.exists():
        return
    if go_programs.find_go() is None:
        pytest.skip(f"{program.title} is built by Go's tool chain, which is not here")
    if how_else:
        pytest.skip(f"{program.title} is not built yet: {how_else}")


def skip_without_azurite(*, may_fetch: bool = True) -> None:
    """Skip the test where the server cannot be run, or can be had neither from the cache nor by npm."""
    program = node_programs.AZURITE
    if node_programs.find_node() is None:
        pytest.skip(f"{program.title} is run by node, which is not here")
    if program.path.exists():
        return
    if node_programs.find_npm() is None:
        pytest.skip(f"{program.title} is fetched by npm, which is not here")
    if not may_fetch:
        pytest.skip(f"{program.title} is not fetched yet: tests with the mark `matrix` do it once")


def signatures_count(any_store: StoreServer) -> bool:
    """Whether the store checks signatures: then a proxy cannot change requests, or make some of its own."""
    host = urlsplit(any_store.endpoint)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=10)
    try:
        connection.request("GET", any_store.listing)  # not signed
        status = connection.getresponse().status
    finally:
        connection.close()
    assert status in (http.client.OK, http.client.FORBIDDEN), status
    return status == http.client.FORBIDDEN


def skip_if_signatures_count(any_store: StoreServer) -> None:
    if signatures_count(any_store):
        pytest.skip("this store checks signatures, and the proxy of the test changes what was signed")
