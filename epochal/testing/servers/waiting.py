"""Waits for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from epochal.testing.servers.errors import ServerFailed

PAUSE = 0.05  # seconds between two checks: a start takes seconds, and each check opens a connection


def wait_until(condition: Callable[[], bool], timeout: float, message: Callable[[], str]) -> None:
    """Return as soon as the condition holds. Raises `ServerFailed` with the message after the timeout."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise ServerFailed(message())
        time.sleep(PAUSE)
