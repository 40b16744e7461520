"""Reports unsettled epochs when the process exits, however the query was started.

With ``foreachBatch(writer)`` the user waits on Spark's own query handle, which does not know that epochs are still to
be settled: the process would exit with 0 and leave an epoch invisible. So the process prints what to run, and exits
with 1. It does the same if the query was stopped because another driver has taken over.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from epochal.txn.printable import printable

UNSETTLED = 1

_lock = threading.Lock()
_unsettled: dict[str, str] = {}  # checkpoint -> why its last epochs are not settled
_fenced: dict[str, str] = {}  # checkpoint -> which driver has taken over
_at_once = threading.Event()


def record_unsettled(checkpoint: str, why: str) -> None:
    """Record that the query on this checkpoint has ended with unsettled epochs."""
    with _lock:
        _unsettled[checkpoint] = why


def record_fenced(checkpoint: str, why: str) -> None:
    """Record that the query on this checkpoint was stopped because another driver has taken over."""
    with _lock:
        _fenced[checkpoint] = why


def clear(checkpoint: str) -> None:
    """Drop the record: everything is settled, or a new start on the checkpoint will settle it."""
    with _lock:
        _unsettled.pop(checkpoint, None)
        _fenced.pop(checkpoint, None)


def leave_at_once() -> None:
    """Let the process end as soon as it has settled, without the handlers of others.

    Those of Spark Connect's client call a server for ten minutes that may have died.
    """
    _at_once.set()


def report_at_exit(recover: Callable[[str], str] = "epochal recover {}".format) -> None:
    """Print what is unsettled, and make the process exit with 1. Called by atexit."""
    with _lock:
        unsettled, fenced = dict(_unsettled), dict(_fenced)
    for checkpoint, why in unsettled.items():
        _tell(f"epochal: the query ended with unsettled epochs: {printable(why)}\n")
        _tell(f"epochal: run `{recover(checkpoint)}`\n")
    for why in fenced.values():
        _tell(f"epochal: the query was stopped: {printable(why)}\n")
    if _at_once.is_set():
        _tell("")
        os._exit(UNSETTLED if unsettled or fenced else 0)
    if (unsettled or fenced) and getattr(sys, "last_type", None) is None:  # an exception has set its own exit code
        # An atexit handler cannot change the exit code, and os._exit in one would skip the other handlers. The
        # attributes of `sys` are deleted after all handlers have run and the streams are flushed.
        setattr(sys, "_epochal_exit_code", _ExitWhenDeleted())  # noqa: B010  # sys declares no such attribute


def _tell(text: str) -> None:
    """Print, if somebody reads it: a server that ends its Python processes closes their output first."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
        sys.stdout.flush()
    except OSError:
        pass


class _ExitWhenDeleted:
    """Exits the process when it is deleted. This module may be empty by then, so the defaults hold what it needs."""

    def __del__(self, leave: Callable[[int], None] = os._exit, code: int = UNSETTLED) -> None:
        leave(code)
