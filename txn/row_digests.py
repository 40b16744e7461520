"""Row counts and row digests, which can be added up. Pure: no I/O, no clock.

A digest is the sum of a 64-bit hash of each row. So neither the order of rows nor their distribution over files
matters, and the digests of epochs add up to the digest of all of them. It is written as ``x64:0123456789abcdef``. In
text formats lines are hashed instead of rows, and their number follows: ``x64:0123456789abcdef:17``. A row may have
several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PATTERN = re.compile(r"x64:([0-9a-f]{16})(?::(\d+))?", re.ASCII)
_MODULUS = 1 << 64


def digest_text(value: int, lines: int | None = None) -> str:
    """A digest as written in journals and manifests.

    >>> digest_text(-1), digest_text(255, 17)
    ('x64:ffffffffffffffff', 'x64:00000000000000ff:17')
    """
    return f"x64:{value % _MODULUS:016x}" + ("" if lines is None else f":{lines}")


def is_digest(text: object) -> bool:
    """Whether a text is a digest of this kind; newer versions may have others."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def lines_of(digest: str | None) -> int | None:
    """The number of lines in a digest of lines; None for a digest of rows."""
    match = _PATTERN.fullmatch(digest or "")
    return int(match[2]) if match and match[2] is not None else None


@dataclass(frozen=True, slots=True)
class RowDigest:
    """A number of rows, and their digest if one was computed."""

    rows: int = 0
    digest: str | None = None

    def __add__(self, other: RowDigest) -> RowDigest:
        """The sum. It has a digest only if both have one of the same kind.

        >>> RowDigest(2, "x64:ffffffffffffffff") + RowDigest(1, "x64:0000000000000003")
        RowDigest(rows=3, digest='x64:0000000000000002')
        >>> RowDigest(2, "x64:00000000000000ff") + RowDigest(1)
        RowDigest(rows=3, digest=None)
        """
        for one, another in ((self, other), (other, self)):
            if one.is_nothing:
                return RowDigest() if another.is_nothing else another  # the same result in either order
        return RowDigest(self.rows + other.rows, _added(self.digest, other.digest))

    @property
    def is_nothing(self) -> bool:
        """Whether adding it changes nothing: an epoch without rows needs no digest."""
        return self.rows == 0 and self.digest in (None, digest_text(0), digest_text(0, 0))


def total(digests: Iterable[RowDigest]) -> RowDigest:
    """The sum of all."""
    return sum(digests, start=RowDigest())


def _added(first: str | None, second: str | None) -> str | None:
    one, another = _PATTERN.fullmatch(first or ""), _PATTERN.fullmatch(second or "")
    if one is None or another is None or (one[2] is None) != (another[2] is None):
        return None
    lines = None if one[2] is None else int(one[2]) + int(another[2])
    return digest_text(int(one[1], 16) + int(another[1], 16), lines)
