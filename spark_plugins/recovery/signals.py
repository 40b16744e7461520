"""Signals whose handlers raise, and a process that must not be started without its name being known."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HELD = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def signals_held() -> Iterator[None]:
    """In the block no signal is handled; those that came are at its end."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    # What is ignored stays so, for the process that is started as well.
    before = {number: signal.getsignal(number) for number in HELD}
    held = [number for number in HELD if before[number] not in (signal.SIG_IGN, None)]
    for number in held:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        for late in came:
            signal.raise_signal(late)
