"""Signals that end a command in order: what it has made for itself is removed first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
KILLED_BY = 128  # and the number of the signal, as in a shell


@contextmanager
def ended_in_order() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP leave it by SystemExit. Those that are ignored, as under nohup, stay so."""
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number in ENDING if before[number] is not signal.SIG_IGN]

    def end(number: int, _frame: FrameType | None) -> None:
        for other in heard:  # a second signal must not interrupt the removal
            signal.signal(other, signal.SIG_IGN)
        sys.exit(KILLED_BY + number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
