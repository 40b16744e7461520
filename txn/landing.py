"""An epoch that a store shows, against the one that is being committed. Pure: no I/O, no clock.

Every sink asks the same two questions before it shows epoch N: does the store hold N-1, and if it holds N, is that this
very attempt? A copy of a journal has attempts of the same numbers, and other rows in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from epochal.txn.errors import Rewound, TwoJournals
from epochal.txn.model import Attempt


@dataclass(frozen=True, slots=True)
class Shown:
    """Which attempt an epoch in a store is. Older versions wrote less: what they left out is None or empty."""

    generation: int | None
    start: str
    offsets: str | None

    def is_attempt(self, attempt: Attempt, offsets: str) -> bool:
        """Whether nothing that is known of both differs.

        >>> Shown(3, "", "ab").is_attempt(Attempt("1f0c9a2e", 42, 3, start="5a17"), "ab")
        True
        """
        return (
            self.generation in (None, attempt.generation)
            and (self.start == attempt.start or "" in (self.start, attempt.start))
            and self.offsets in (None, offsets)
        )


def check_same(sink: str, where: str, attempt: Attempt, offsets: str, shown: Shown) -> None:
    """Refuse an epoch that is in the store from another start, or from other offsets, than the one decided here."""
    if not shown.is_attempt(attempt, offsets):
        raise TwoJournals(
            f"sink {sink!r}: epoch {attempt.epoch} is in {where} from another start ({_start(shown)}) than the one "
            f"that was decided here ({_start(attempt)}): two journals write one stream, so one checkpoint is a copy. "
            "Nothing was changed. Go on with the checkpoint that wrote it"
        )


def check_predecessor(sink: str, where: str, attempt: Attempt, holds: Callable[[int], bool]) -> None:
    """Refuse an epoch where the one before it is not in the store any more."""
    if attempt.after is not None and not holds(attempt.after):
        raise Rewound(
            f"sink {sink!r}: epoch {attempt.after} was written to {where} and is not there any more: it was emptied, "
            "made anew or restored from an older copy while the stream ran. Nothing of epoch "
            f"{attempt.epoch} was written. Put it back and start the query again; or start it and choose"
        )


def _start(one: Shown | Attempt) -> str:
    return "unknown" if one.generation is None else f"generation {one.generation}{one.start and f', {one.start}'}"
