"""Waiting for an event itself, with a deadline; never for luck. And the pauses of those who look all the while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEADLINE = 240.0  # seconds; far more than anything needs on a machine that has nothing else to do
REST = 2  # times as long as a look
LONGEST_REST = 0.5  # seconds, of those who wait


def wait_until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return once the condition holds, soon if a look takes long; AssertionError if it never does."""
    start = looked = time.monotonic()
    while not condition():
        assert is_early(start, deadline), f"waited {time.monotonic() - start:.0f} s in vain: {what}"
        time.sleep(min(LONGEST_REST, _rest(looked, REST)))
        looked = time.monotonic()


def is_early(start: float, deadline: float = DEADLINE) -> bool:
    """Whether it is too early to give up something that was started at a time of the monotonic clock.

    The more others want this machine's processors, the longer everything may take.
    """
    spent = time.monotonic() - start
    return spent < deadline or spent < deadline * os.getloadavg()[0] / (os.cpu_count() or 1)


@contextmanager
def leisurely(times: int = REST) -> Iterator[None]:
    """Rest for some time after a look, the longer the more it took: those who are looked at need the processors."""
    began = time.monotonic()
    yield
    time.sleep(_rest(began, times))


def _rest(began: float, times: int) -> float:
    return max(0.01, times * (time.monotonic() - began))
