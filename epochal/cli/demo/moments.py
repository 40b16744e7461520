"""When to kill the driver: the moments at which exactly-once is hard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from epochal.cli.demo.watch import Sight


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment at which to kill, and how to recognise it from outside."""

    name: str
    is_now: Callable[[Sight], bool]


LANDED = Moment("after the plain append, before its commits/N", lambda s: s.plain_landed)
PREPARED = Moment("after epochal's PREPARED, before commits/N", lambda s: s.prepared)
UNSEEN = Moment("after commits/N, before epochal has shown the epoch", lambda s: s.done < s.committed)
STAGING = Moment("while epochal stages an epoch", lambda s: s.staging and not s.prepared)
# The fallback if a slow machine never shows the wanted moment.
MIDWAY = Moment("in the middle of an epoch", lambda s: s.planned > s.committed)

PLAN = (LANDED, PREPARED, UNSEEN, STAGING)


def wanted(kills_so_far: int) -> Moment:
    """The moment of the next kill."""
    return PLAN[kills_so_far % len(PLAN)]


def is_near(moment: Moment, sight: Sight, at_start: Sight) -> bool:
    """Whether the moment may come now. Each start first finishes an epoch, so that the kills are spread out."""
    if moment is LANDED:
        return sight.plain_committed > at_start.plain_committed
    return sight.committed > at_start.committed


def is_due(moment: Moment, sight: Sight, at_start: Sight, epochs: int) -> bool:
    """Whether to kill now."""
    if not is_near(moment, sight, at_start):
        return False
    late = sight.plain_committed >= epochs - 2 if moment is LANDED else sight.committed >= epochs - 3
    return moment.is_now(sight) or (late and MIDWAY.is_now(sight))
