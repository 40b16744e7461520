"""Why one of our own checks ended a job of Spark's: the reason travels inside Spark's error message."""

from __future__ import annotations

import re

_REASON = re.compile(r"epochal<<(.*?)>>", re.DOTALL)


def marked(reason: str) -> str:
    """A reason on its way through Spark."""
    return f"epochal<<{reason}>>"


def reason_of(fault: BaseException) -> str | None:
    """The reason in a fault of Spark's, if one of our checks ended the job.

    >>> reason_of(ValueError("Job aborted: epochal<<the key column id is null in a row>>"))
    'the key column id is null in a row'
    """
    found = _REASON.search(str(fault))
    return found[1] if found else None
