"""When changes become segments and when segments are merged. Pure: no I/O and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epochal.txn.state.segments import SegmentRef

RUN = 4  # segments of about one size that are merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The settings of a log cleaner."""

    dirty_ratio: float = 0.5  # all segments are merged when this part of their entries came after the last such merge
    segment_age: float | None = None  # seconds after which changes become a segment, however few epochs there are
    retention: float = 0.0  # seconds for which a merged segment still says that a key was deleted


def segments_to_merge(segments: Sequence[SegmentRef], knobs: Knobs) -> int:
    """How many of the newest segments to merge into one; 0 for none.

    All of them once enough is dirty. Else the newest ones that are of about one size, when there are some, so that
    there are never many segments and each entry is rewritten a few times only.
    """
    total = sum(ref.entries for ref in segments)
    dirty = sum(ref.entries for ref in segments if not ref.clean)
    if len(segments) > 1 and dirty >= knobs.dirty_ratio * total:
        return len(segments)
    run, size = 0, 0
    for ref in reversed(segments):
        if run and ref.entries > 2 * size:
            break
        run, size = run + 1, size + ref.entries
    return run if run >= RUN else 0
