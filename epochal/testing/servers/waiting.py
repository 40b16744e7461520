"""Waiting for a condition, with a deadline; never for luck."""

from __future__ import annotations

import time
from collections.abc import Callable

from epochal.testing.servers.errors import ServerFailed

PAUSE = 0.05  # seconds between two looks: a start takes seconds, and each look costs the server a connection


def wait_until(condition: Callable[[], bool], timeout: float, complaint: Callable[[], str]) -> None:
    """Return as soon as the condition holds; `ServerFailed` with the complaint if it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise ServerFailed(complaint())
        time.sleep(PAUSE)
