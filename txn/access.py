"""Folders that cannot be read or created: the error names the option to correct."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from epochal.txn.errors import Refused

# Waiting does not help against these; any other error of a file system may be temporary.
WRONG_PLACE = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
TARGET_ADVICE = "Correct the sink's path, or let this user write there"


@contextmanager
def refuse_unreachable(what: str, advice: str) -> Iterator[None]:
    """At a start: refuse a folder that does not exist, is a file, or is not accessible."""
    try:
        yield
    except OSError as fault:
        if not isinstance(fault, WRONG_PLACE) and fault.errno != errno.ELOOP:  # a loop of links
            raise
        raise Refused(f"{what} cannot be reached: {fault}. Nothing was written. {advice}") from fault
