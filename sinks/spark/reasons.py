"""The reason why one of our own checks failed a Spark job. It is part of Spark's error message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epochal.txn.errors import BadRows

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_REASON = re.compile(r"epochal<<(.*?)>>", re.DOTALL)


def marked(reason: str) -> str:
    """A reason, marked so that `reason_of` finds it in Spark's error message."""
    return f"epochal<<{reason}>>"


def reason_of(fault: BaseException) -> str | None:
    """The reason in a fault of Spark's, if one of our checks ended the job.

    >>> reason_of(ValueError("Job aborted: epochal<<the key column id is null in a row>>"))
    'the key column id is null in a row'
    """
    found = _REASON.search(str(fault))
    return found[1] if found else None


def as_bad_rows(sink: str, fault: PySparkException) -> BadRows | None:
    """The error of a sink whose rows failed a check of ours or Spark's analysis; None if the fault is another."""
    from pyspark.errors import AnalysisException

    # What the analysis says has the whole plan in it, and so our checks as they are written there.
    reason = None if isinstance(fault, AnalysisException) else reason_of(fault)
    if reason is None and not isinstance(fault, AnalysisException):
        return None
    return BadRows(f"sink {sink!r}: {reason or fault.getMessage()}. Nothing of the epoch was written")
