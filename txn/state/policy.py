"""When changes become segments and when segments are merged. Pure: no I/O and no clock.

Three numbers decide how long a recovery takes and what it costs to keep it short. With L live entries and a dirty
ratio r, segments hold up to L / (1 - r) entries; records hold the changes of the epochs that are not folded yet. Each
full merge rewrites all entries and is due after r / (1 - r) * L changes, so a change costs 1 / r rewritten entries. A
small ratio buys a short recovery with processor time.

A share of a processor pays for folding what changed and for merging. Both wait until they are saved up. If the share
does not pay for as much as is needed, the journal would grow without end: limits hold whatever they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from epochal.txn.state.segments import SegmentRef

RUN = 4  # segments of about one size that are merged
EPOCHS = 20  # done epochs whose records stay, and that many more before they are folded
LEAST_EPOCHS = 2
MOST_EPOCHS = 200  # done epochs that wait for a share of a processor; more are folded whatever it costs
MOST_SEGMENTS = 64  # and so many segments
AN_EPOCH = 200  # changes that cost as much to fold as the records of an epoch without any
MARGIN = 0.7  # of the objective, for what was not measured
RECORDS_PART = 0.4  # of the objective, at most, for reading records
RATIOS = 0.01, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The settings of a log cleaner."""

    dirty_ratio: float = 0.5  # all segments are merged when this part of their entries came after the last such merge
    segment_age: float | None = None  # seconds after which changes become a segment, however few epochs there are
    retention: float = 0.0  # seconds for which a merged segment still says that a key was deleted
    epochs: int = EPOCHS  # done epochs whose records stay; as many more may wait to be folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a driver has measured. The first values are guesses for a slow machine."""

    restored: float = 500_000.0  # entries of segments that are read in a second
    decoded: float = 10e6  # bytes of records that are read in a second
    merged: float = 8e-6  # seconds of a processor to merge an entry
    folded: float = 5e-6  # seconds of a processor to fold a change
    changed: float = 0.0  # changes in a second
    live: int = 0  # entries of the state
    record: float = 0.0  # bytes of an epoch's records

    def with_rate(self, name: str, value: float, weight: float = 0.3) -> Measured:
        """With a new value of one rate, smoothed."""
        before: float = getattr(self, name)
        smoothed: Any = value if before in (0.0, _GUESSES[name]) else before + weight * (value - before)
        return replace(self, **{name: smoothed})


_GUESSES = {name: getattr(Measured(), name) for name in Measured.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What to hold: fixed knobs, or a recovery time in seconds, or a share of a processor."""

    knobs: Knobs = field(default_factory=Knobs)
    recovery: float | None = None
    cpu: float | None = None

    def tuned(self, measured: Measured) -> Knobs:
        """The laziest knobs that should hold the objective, by what was measured."""
        if self.recovery is not None:
            return self._for_recovery(self.recovery * MARGIN, measured)
        if self.cpu is not None:
            left = self.cpu - measured.changed * measured.folded
            ratio = measured.changed * measured.merged / left if left > 0 else 1.0
            return replace(self.knobs, dirty_ratio=_within(ratio, *RATIOS))
        return self.knobs

    def _for_recovery(self, seconds: float, measured: Measured) -> Knobs:
        """Fewer epochs in records if these take long to read; for segments, the largest ratio that fits the rest."""
        an_epoch = measured.record / measured.decoded
        fits = RECORDS_PART * seconds / (2 * an_epoch) if an_epoch else float(EPOCHS)
        epochs = int(_within(fits, LEAST_EPOCHS, EPOCHS))
        left = seconds - 2 * epochs * an_epoch
        # L / (1 - r) entries are read in the time that is left.
        ratio = 1 - measured.live / (measured.restored * left) if left > 0 else 0.0
        return replace(self.knobs, dirty_ratio=_within(ratio, *RATIOS), epochs=epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a recovery would read now."""

    live: int  # entries of the state
    entries: int  # of segments
    bytes: int  # of segments
    segments: int
    epochs: int  # how far back the oldest segment, or record, lies
    changes: int  # in records that are newer than the segments
    record_bytes: int

    @property
    def replay(self) -> int:
        """The entries and changes that a recovery reads beyond those that it needs."""
        return max(0, self.entries + self.changes - self.live)

    def predicted(self, measured: Measured) -> float:
        """How many seconds it would take to restore the state."""
        return self.entries / measured.restored + self.record_bytes / measured.decoded


def fold_work(*, epochs: int, changes: int) -> int:
    """What it costs to fold so many epochs with so many changes, without merging: as much as so many changes."""
    return changes + AN_EPOCH * epochs


def may_fold(epochs: int, work: int, measured: Measured, affords: Callable[[float], bool]) -> bool:
    """Whether so many epochs that wait may be folded: once that is paid for, or there are too many of them."""
    return epochs >= MOST_EPOCHS or affords(work * measured.folded)


def segments_to_merge(segments: Sequence[SegmentRef], knobs: Knobs) -> int:
    """How many of the newest segments to merge into one; 0 for none.

    All of them once enough is dirty. Else the newest ones that are of about one size, when there are some, so that
    there are never many segments and each entry is rewritten a few times only.
    """
    return len(segments) if _is_dirty(segments, knobs.dirty_ratio) else _of_one_size(segments)


def affordable_merge(
    segments: Sequence[SegmentRef], knobs: Knobs, measured: Measured, affords: Callable[[float], bool]
) -> int:
    """Like `segments_to_merge`, but 0 while there is not the processor time for it, unless a limit is reached."""
    count = segments_to_merge(segments, knobs)
    chosen = segments[len(segments) - count :]
    if not count or affords(sum(ref.entries for ref in chosen) * measured.merged):
        return count
    if _is_dirty(segments, RATIOS[1]):
        return len(segments)
    if len(segments) > MOST_SEGMENTS:
        return _of_one_size(segments) or len(segments)
    return 0


def _is_dirty(segments: Sequence[SegmentRef], ratio: float) -> bool:
    total = sum(ref.entries for ref in segments)
    return len(segments) > 1 and sum(ref.entries for ref in segments if not ref.clean) >= ratio * total


def _of_one_size(segments: Sequence[SegmentRef]) -> int:
    run, size = 0, 0
    for ref in reversed(segments):
        if run and ref.entries > 2 * size:
            break
        run, size = run + 1, size + ref.entries
    return run if run >= RUN else 0


def _within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
