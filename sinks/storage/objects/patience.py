"""How long a request is tried again, and how often."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from epochal.sinks.storage.objects.faults import Away

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Bounded tries with growing pauses. Each pause is random, so that clients that failed together part."""

    tries: int = 12
    first: float = 0.05  # seconds
    longest: float = 5.0
    deadline: float = 60.0  # no try begins later
    sleep: Callable[[float], None] = time.sleep

    def rounds(self) -> Iterator[bool]:
        """One item for each try, with the pause before it: whether it is the last."""
        begun = time.monotonic()
        for number in range(self.tries):
            if number:
                self.sleep(random.uniform(0.5, 1) * min(self.longest, self.first * 2 ** (number - 1)))
            is_late = time.monotonic() - begun >= self.deadline
            yield is_late or number == self.tries - 1
            if is_late:
                return

    def until_answered(self, request: Callable[[], Answer]) -> Answer:
        """Send a request that may be repeated until it is answered. `Away` if it never is."""
        for is_last in self.rounds():
            try:
                return request()
            except Away:
                if is_last:
                    raise
        raise AssertionError
