"""When a part that stays open over epochs is closed. Pure: no I/O and no clock of its own.

Each epoch adds pieces to the open part of a bucket, in the order of epochs and names. As soon as the pieces reach
`max_bytes` or `max_rows`, the part is closed and becomes one published file; later pieces belong to the next part.
Other parts stay open until `max_age` after their first piece or `inactivity` after their last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Annotated

from epochal.sinks.config import checks
from epochal.sinks.config.declaring import CheckedOptions, Option, declared
from epochal.sinks.config.options import Faults
from epochal.sinks.config.quantities import parse_duration, parse_size

MERGE_BELOW = 512 * 1024  # from this size on, more row groups do not make reading slower (docs/files.md)


@declared
@dataclass(frozen=True, kw_only=True)
class Rolling(CheckedOptions):
    """A part stays open over epochs, and appears when the first of these limits is reached.

    >>> Rolling(max_bytes="64 MB", max_age="5 min")
    Rolling(max_bytes='64 MB', max_rows=None, max_age='5 min', inactivity=None, merge_below=None)
    """

    max_bytes: Annotated[
        int | str | None,
        Option(
            'limit: the bytes of the part\'s pieces together: a number, or `"64 MB"` (a MB is 1024 x 1024 bytes)',
            check=checks.parsed(parse_size),
        ),
    ] = None
    max_rows: Annotated[int | None, Option("limit: their rows; for JSON, CSV and text, lines")] = None
    max_age: Annotated[
        float | str | timedelta | None,
        Option(
            'limit: the time since the part\'s first epoch: seconds, or `"90 s"`, `"5 min"`, `"2 h"`',
            check=checks.parsed(parse_duration),
        ),
    ] = None
    inactivity: Annotated[
        float | str | timedelta | None,
        Option("limit: the time since the last epoch that added to it", check=checks.parsed(parse_duration)),
    ] = None
    merge_below: Annotated[
        int | str | None,
        Option(
            "no limit: Spark merges the rows of Parquet and ORC pieces that are smaller on average; larger ones are "
            "copied as they are",
            check=checks.parsed(parse_size),
            shown_default='`"512 KB"`',
        ),
    ] = None

    def check_together(self, faults: Faults) -> None:
        limits = (self.max_bytes, self.max_rows, self.max_age, self.inactivity)
        faults.check(any(limit is not None for limit in limits), "give a limit, or a part would never appear")

    @cached_property
    def bytes_limit(self) -> int | None:
        return None if self.max_bytes is None else parse_size(self.max_bytes)

    @cached_property
    def age_limit(self) -> float | None:
        return None if self.max_age is None else parse_duration(self.max_age)

    @cached_property
    def idle_limit(self) -> float | None:
        return None if self.inactivity is None else parse_duration(self.inactivity)

    @cached_property
    def merge_limit(self) -> int:
        return MERGE_BELOW if self.merge_below is None else parse_size(self.merge_below)

    def is_reached(self, size: int, rows: int) -> bool:
        """Whether a part of so many bytes and rows is closed whatever the time."""
        if self.bytes_limit is not None and size >= self.bytes_limit:
            return True
        return self.max_rows is not None and rows >= self.max_rows


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task of one epoch added to a bucket's open part."""

    epoch: int
    bucket: str  # the folder below the target, with a slash at its end; empty without buckets
    name: str  # below the folder of the epoch's pieces
    bytes: int
    rows: int | None  # None if they were not counted
    at: float  # the wall clock of its epoch
    shape: str  # pieces of different shapes do not fit into one file

    @property
    def order(self) -> tuple[str, int, str]:
        return self.bucket, self.epoch, self.name


@dataclass(frozen=True, slots=True)
class RollPlan:
    """Which pieces become one file each, and which stay open."""

    closed: tuple[tuple[Piece, ...], ...]
    open: tuple[Piece, ...]


def roll_plan(
    pieces: Iterable[Piece],
    policy: Rolling | None,
    clock: float,
    *,
    shape: str | None = None,
    complete: Collection[str] = (),
) -> RollPlan:
    """Which parts close now, and which stay open.

    Without a policy every part closes. So do parts of another `shape`, and parts of buckets that are `complete`.
    """
    closed: list[tuple[Piece, ...]] = []
    left: list[Piece] = []
    for part in _parts(sorted(pieces, key=lambda piece: piece.order)):
        current: list[Piece] = []
        size = rows = 0
        for piece in part:
            current.append(piece)
            size, rows = size + piece.bytes, rows + (piece.rows or 0)
            if policy is not None and policy.is_reached(size, rows):
                closed.append(tuple(current))
                current, size, rows = [], 0, 0
        if not current:
            continue
        overdue = policy is None or due([current], policy) <= clock
        if overdue or shape not in (None, current[0].shape) or current[0].bucket in complete:
            closed.append(tuple(current))
        else:
            left.extend(current)
    return RollPlan(tuple(closed), tuple(left))


NEVER = float("inf")


def due(parts: Iterable[Iterable[Piece]], policy: Rolling) -> float:
    """When the first of some open parts closes by the clock; infinity for never."""
    earliest = NEVER
    for part in parts:
        times = [piece.at for piece in part]
        if policy.age_limit is not None:
            earliest = min(earliest, min(times) + policy.age_limit)
        if policy.idle_limit is not None:
            earliest = min(earliest, max(times) + policy.idle_limit)
    return earliest


def open_parts(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """The pieces of each open part."""
    return list(_parts(sorted(pieces, key=lambda piece: piece.order)))


def rows_of(part: Iterable[Piece]) -> int | None:
    """The rows of a part, if all of its pieces were counted."""
    counts = [piece.rows for piece in part]
    return None if None in counts else sum(count for count in counts if count is not None)


def _parts(ordered: Iterable[Piece]) -> Iterator[list[Piece]]:
    """The pieces of each bucket and shape."""
    parts: dict[tuple[str, str], list[Piece]] = {}
    for piece in ordered:
        parts.setdefault((piece.bucket, piece.shape), []).append(piece)
    yield from parts.values()
