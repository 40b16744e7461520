"""What was left unsettled is heard of at the end of the process, whatever route the query took.

With ``foreachBatch(writer)`` Spark's own handle waits for the query, and knows nothing of what its rows still need: the
process would end well with an epoch that nobody sees. So the last line says what to do, and the exit code is 1.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

UNSETTLED = 1

_lock = threading.Lock()
_left: dict[str, str] = {}  # checkpoint -> why its last epochs are not settled


def note(checkpoint: str, why: str) -> None:
    """The query on this checkpoint has ended, and something of it is not settled."""
    with _lock:
        _left[checkpoint] = why


def forget(checkpoint: str) -> None:
    """A new start on the checkpoint answers for it, or everything is settled."""
    with _lock:
        _left.pop(checkpoint, None)


def tell(recover: Callable[[str], str] = "epochal recover {}".format) -> None:
    """At the end of the interpreter: say what is left, and see that the process does not end well."""
    with _lock:
        left = dict(_left)
    for checkpoint, why in left.items():
        sys.stderr.write(f"epochal: not settled: {why}\nepochal: run `{recover(checkpoint)}`\n")
    if left and getattr(sys, "last_type", None) is None:  # an exception has made its own exit code
        # An exit code cannot be changed by a handler of atexit, and os._exit there would keep the others from
        # running. What hangs on `sys` goes when all of them are through and the streams are flushed.
        setattr(sys, "_epochal_last_word", _LastWord())  # noqa: B010  # sys has no such field


class _LastWord:
    """Ends the process when it is collected. By then this module may be empty, so all it needs is in its defaults."""

    def __del__(self, leave: Callable[[int], None] = os._exit, code: int = UNSETTLED) -> None:
        leave(code)
