"""Durations as people read them."""

from __future__ import annotations


def lasting(seconds: float) -> str:
    """A duration in the largest unit that gives at least 2.

    >>> lasting(42), lasting(250), lasting(9000), lasting(200_000)
    ('42 s', '4 min', '2 h', '2 days')
    """
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
