"""Which of the object stores a test can run on."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from epochal.testing.servers import S3Store, go_programs


def skip_without_versitygw(*, may_build: bool = True) -> None:
    """Skip the test where the server can be had neither from the cache nor by building it."""
    program = go_programs.VERSITYGW
    if program.path.exists():
        return
    if go_programs.find_go() is None:
        pytest.skip(f"{program.title} is built by Go's tool chain, which is not here")
    if not may_build:
        pytest.skip(f"{program.title} is not built yet: `epochal serve s3 --server versitygw` does it once")


def signatures_count(s3: S3Store) -> bool:
    """Whether the store checks signatures: then a proxy cannot change requests, or make some of its own."""
    host = urlsplit(s3.endpoint)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=10)
    try:
        connection.request("GET", f"/{s3.bucket}")  # not signed
        status = connection.getresponse().status
    finally:
        connection.close()
    assert status in (http.client.OK, http.client.FORBIDDEN)
    return status == http.client.FORBIDDEN


def skip_if_signatures_count(s3: S3Store) -> None:
    if signatures_count(s3):
        pytest.skip("this store checks signatures, and the proxy of the test changes what was signed")
