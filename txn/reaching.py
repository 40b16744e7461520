"""Places that cannot be read or made, told with the option that named them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from epochal.txn.errors import Refused

# What no waiting cures; whatever else a file system says may be over soon.
WRONG_PLACE = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


@contextmanager
def reaching(what: str, advice: str) -> Iterator[None]:
    """At a start: a place that is not there, is a file, or may not be touched is refused in one line."""
    try:
        yield
    except WRONG_PLACE as fault:
        raise Refused(f"{what} cannot be reached: {fault}. Nothing was written. {advice}") from fault
