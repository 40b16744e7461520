"""The names that Spark gives to the files it writes."""

from __future__ import annotations

import re

# From the last of what looks like it: the UUID in a name may end in a c and eleven digits.
_WRITTEN = re.compile(r".*[.-]c\d{3,}(\.[A-Za-z0-9.]+)")


def ending_of_written(name: str) -> str | None:
    """The ending of a file that Spark's writer has named, after its number of the file in a task.

    >>> ending_of_written("part-00000-9d3336c3-9cec-428d-ad0e-c68841544624.c000.snappy.parquet")
    '.snappy.parquet'
    >>> ending_of_written("part-00000-9d3336c3-9cec-428d-ad0e-1b6ce5a0f3d2-c000.csv.gz")
    '.csv.gz'
    """
    found = _WRITTEN.fullmatch(name)
    return found[1] if found else None
