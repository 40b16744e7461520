"""How many rows there are, and which: counts and digests that can be added up. Pure.

A digest is the sum of a 64-bit hash of each row, so neither order nor the way rows are spread over files matters, and
the digests of epochs add up to that of all of them. It is written as ``x64:0123456789abcdef``. Where rows are kept as
lines of text, lines are hashed, and their number follows: ``x64:0123456789abcdef:17``. A row may have several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PATTERN = re.compile(r"x64:([0-9a-f]{16})(?::(\d+))?", re.ASCII)
_MOST = 1 << 64


def digest_text(value: int, lines: int | None = None) -> str:
    """A digest as journals and manifests carry it.

    >>> digest_text(-1), digest_text(255, 17)
    ('x64:ffffffffffffffff', 'x64:00000000000000ff:17')
    """
    return f"x64:{value % _MOST:016x}" + ("" if lines is None else f":{lines}")


def is_digest(text: object) -> bool:
    """Whether a text is a digest of this kind; a newer epochal may have others."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def lines_of(digest: str | None) -> int | None:
    """How many lines a digest was taken of; None for one of rows."""
    found = _PATTERN.fullmatch(digest or "")
    return int(found[2]) if found and found[2] is not None else None


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Rows, and their digest where one was taken."""

    rows: int = 0
    digest: str | None = None

    def __add__(self, other: RowDigest) -> RowDigest:
        """Both together: without a digest unless all rows have one, of one kind.

        >>> RowDigest(2, "x64:ffffffffffffffff") + RowDigest(1, "x64:0000000000000003")
        RowDigest(rows=3, digest='x64:0000000000000002')
        >>> RowDigest(2, "x64:00000000000000ff") + RowDigest(1)
        RowDigest(rows=3, digest=None)
        """
        for one, another in ((self, other), (other, self)):
            if one.is_nothing:
                return RowDigest() if another.is_nothing else another  # one spelling, whatever the order was
        return RowDigest(self.rows + other.rows, _added(self.digest, other.digest))

    @property
    def is_nothing(self) -> bool:
        """Whether it changes no sum: an epoch without rows needs no digest."""
        return self.rows == 0 and self.digest in (None, digest_text(0), digest_text(0, 0))


def total(digests: Iterable[RowDigest]) -> RowDigest:
    """All of them together."""
    return sum(digests, start=RowDigest())


def _added(first: str | None, second: str | None) -> str | None:
    one, another = _PATTERN.fullmatch(first or ""), _PATTERN.fullmatch(second or "")
    if one is None or another is None or (one[2] is None) != (another[2] is None):
        return None
    lines = None if one[2] is None else int(one[2]) + int(another[2])
    return digest_text(int(one[1], 16) + int(another[1], 16), lines)
