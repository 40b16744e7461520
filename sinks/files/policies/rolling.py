"""When a part that stays open over epochs is closed. Pure: no I/O and no clock of its own.

Each epoch adds pieces to the open part of a bucket, in the order of epochs and names. As soon as the pieces reach
`max_bytes` or `max_rows`, they are closed and become one published file; what comes after them is the next part.
What is left stays open until `max_age` after its first piece or `inactivity` after its last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from epochal.sinks.config.options import Faults, known_fields
from epochal.sinks.config.quantities import parse_duration, parse_size

MERGE_BELOW = 512 * 1024  # from this size on, what is read is no slower for being in more row groups (docs/files.md)


@known_fields
@dataclass(frozen=True, kw_only=True)
class Rolling:
    """A part stays open over epochs, and appears when the first of these limits is reached.

    >>> Rolling(max_bytes="64 MB", max_age="5 min")
    Rolling(max_bytes='64 MB', max_rows=None, max_age='5 min', inactivity=None, merge_below=None)

    `max_bytes` counts what is written (a number, or "64 MB", where a MB is 1024 x 1024 bytes), `max_rows` rows.
    `max_age` is the time since the part's first epoch, `inactivity` the time since its last: seconds, or "90 s",
    "5 min", "2 h". `merge_below` is for Parquet and ORC: where an epoch's pieces are smaller on average (512 KB unless
    told), Spark merges their rows into large row groups; else the row groups are copied as they are.
    """

    max_bytes: int | str | None = None
    max_rows: int | None = None
    max_age: float | str | None = None
    inactivity: float | str | None = None
    merge_below: int | str | None = None
    bytes_limit: int | None = field(init=False, repr=False, default=None)
    age_limit: float | None = field(init=False, repr=False, default=None)
    idle_limit: float | None = field(init=False, repr=False, default=None)
    merge_limit: int = field(init=False, repr=False, default=MERGE_BELOW)

    def __post_init__(self) -> None:
        faults = Faults("Rolling")
        limits = (self.max_bytes, self.max_rows, self.max_age, self.inactivity)
        faults.check(any(limit is not None for limit in limits), "give a limit, or a part would never appear")
        if self.max_rows is not None:
            faults.above_zero("max_rows", self.max_rows)
        parsed = {
            "bytes_limit": faults.parsed("max_bytes", self.max_bytes, parse_size),
            "age_limit": faults.parsed("max_age", self.max_age, parse_duration),
            "idle_limit": faults.parsed("inactivity", self.inactivity, parse_duration),
        }
        smallest = faults.parsed("merge_below", self.merge_below, parse_size)
        faults.done()
        parsed["merge_limit"] = MERGE_BELOW if smallest is None else smallest
        for name, value in parsed.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task of one epoch added to a bucket's open part."""

    epoch: int
    bucket: str  # the folder below the target, with a slash at its end; empty without buckets
    name: str  # below the folder in which the epoch's pieces lie
    bytes: int
    rows: int | None  # where they were counted
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


def plan(
    pieces: Iterable[Piece],
    policy: Rolling | None,
    clock: float,
    *,
    shape: str | None = None,
    complete: Collection[str] = (),
) -> RollPlan:
    """Decide for every bucket. Without a policy all is closed; so is what has another `shape`, and what is complete."""
    closed: list[tuple[Piece, ...]] = []
    left: list[Piece] = []
    for part in _parts(sorted(pieces, key=lambda piece: piece.order)):
        current: list[Piece] = []
        for piece in part:
            current.append(piece)
            if policy is not None and _is_full(current, policy):
                closed.append(tuple(current))
                current = []
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
    """When the first of some open parts is to be closed by the clock; infinity for never."""
    found = NEVER
    for part in parts:
        times = [piece.at for piece in part]
        if policy.age_limit is not None:
            found = min(found, min(times) + policy.age_limit)
        if policy.idle_limit is not None:
            found = min(found, max(times) + policy.idle_limit)
    return found


def open_parts(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """The pieces of each part that is open."""
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


def _is_full(pieces: list[Piece], policy: Rolling) -> bool:
    if policy.bytes_limit is not None and sum(piece.bytes for piece in pieces) >= policy.bytes_limit:
        return True
    return policy.max_rows is not None and sum(piece.rows or 0 for piece in pieces) >= policy.max_rows
