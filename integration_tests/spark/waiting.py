"""Waiting for an event itself, with a deadline; never for luck."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE = 240.0  # seconds; far more than a loaded machine needs


def wait_until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return as soon as the condition holds; AssertionError if it never does."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"waited {deadline:.0f} s in vain: {what}"
        time.sleep(0.01)
