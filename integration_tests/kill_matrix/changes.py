"""Every change of the disk as a place to die.

A killed process leaves the disk as it was between two system calls, so dying before each call
that changes the disk, and in the middle of each write, visits every state that a crash of this
process can leave behind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

_CALLS = ("link", "unlink", "mkdir", "rmdir", "rename", "replace")


class Changes:
    """Counts the changes of this process and kills it before the `at`-th; 0 only counts."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self.count = 0

    def install(self) -> None:
        """Wrap the calls of `os` in this process, for good: it is a child with one task."""
        for name in _CALLS:
            setattr(os, name, self._wrapped(getattr(os, name)))
        self._wrap_open()
        self._wrap_write()

    def _change(self) -> None:
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any, **options: Any) -> Any:
            self._change()
            return call(*arguments, **options)

        return changing

    def _wrap_open(self) -> None:
        really = os.open

        def opening(path: str, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self._change()
            return really(path, flags, *arguments, **options)

        setattr(os, "open", opening)  # noqa: B010  # the type checker would compare every overload

    def _wrap_write(self) -> None:
        really = os.write

        def writing(descriptor: int, data: bytes) -> int:
            self._change()
            half = really(descriptor, data[: len(data) // 2])
            self._change()
            return half + really(descriptor, data[half:])

        setattr(os, "write", writing)  # noqa: B010  # the same
