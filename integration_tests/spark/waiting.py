"""Waiting for an event itself, with a deadline; never for luck. And the pauses of those who look all the while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEADLINE = 240.0  # seconds; far more than a loaded machine needs
REST = 2  # times as long as a look


def wait_until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return as soon as the condition holds; AssertionError if it never does."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"waited {deadline:.0f} s in vain: {what}"
        time.sleep(0.01)


@contextmanager
def leisurely() -> Iterator[None]:
    """Rest for some time after a look, the longer the more it took: those who are looked at need the processors."""
    began = time.monotonic()
    yield
    time.sleep(max(0.01, REST * (time.monotonic() - began)))
