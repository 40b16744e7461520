"""Sizes and durations as people write them."""

from __future__ import annotations

import math
import re
from datetime import timedelta

LARGEST = 1e18  # of any unit
_SIZES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: object) -> int:
    """A number of bytes, given as one or as a text; units are powers of 1024.

    >>> parse_size("64 MB"), parse_size("1.5kB"), parse_size(4096)
    (67108864, 1536, 4096)
    """
    number, unit = _split(value)
    factor = _SIZES.get((unit or "B").lower().replace("ib", "b"))
    if factor is None or round(number * factor) < 1:
        raise ValueError("a number of bytes above 0, such as 65536 or '64 MB' (B, kB, MB, GB, TB)")
    return round(number * factor)


def parse_duration(value: object) -> float:
    """A number of seconds, given as one, as a timedelta or as a text.

    >>> parse_duration("5 min"), parse_duration("1.5 h"), parse_duration(2)
    (300.0, 5400.0, 2.0)
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    number, unit = _split(value)
    factor = _SECONDS.get(unit.lower() or "s") or _SECONDS.get(unit.lower().rstrip("s"))
    if factor is None or number * factor <= 0:
        raise ValueError("a time above 0, such as 30 (seconds) or '5 min' (ms, s, min, h, days)")
    return number * factor


def parse_share(value: object) -> float:
    """A part of the whole, given as a number up to 1 or as a text in percent.

    >>> parse_share("2 %"), parse_share(0.5), parse_share("0.66")
    (0.02, 0.5, 0.66)
    """
    text = value.strip() if isinstance(value, str) else value
    percent = isinstance(text, str) and text.endswith("%")
    number, unit = _split(text[:-1] if percent and isinstance(text, str) else text)
    share = number / 100 if percent else number
    if unit or not 0 < share <= 1:
        raise ValueError("a part above 0 and up to 1, such as 0.02 or '2 %'")
    return share


def _split(value: object) -> tuple[float, str]:
    """The number and the unit; -1 for what is no number, and for one that nobody can mean."""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    number: float | str = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif found:
        number = found[1]
    try:
        amount = float(number)
    except OverflowError:  # a whole number that is too large
        amount = math.inf
    return (amount if abs(amount) < LARGEST else -1.0), found[2] if found else ""
