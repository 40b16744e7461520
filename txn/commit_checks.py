"""What a store already shows, compared with the epoch to be committed. Pure: no I/O, no clock.

Before a sink makes epoch N visible it checks two things: the store holds the epoch before it; and if it already holds
N, that is the same attempt. A copy of a journal has attempts with the same numbers but other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from epochal.txn.errors import Rewound, TwoJournals
from epochal.txn.model import Attempt


@dataclass(frozen=True, slots=True)
class VisibleEpoch:
    """The attempt that an epoch in a store came from. What older versions did not record is None or empty."""

    generation: int | None
    start: str
    offsets: str | None

    def is_attempt(self, attempt: Attempt, offsets: str) -> bool:
        """Whether it is the same attempt, as far as both are known.

        >>> VisibleEpoch(3, "", "ab").is_attempt(Attempt("1f0c9a2e", 42, 3, start="5a17"), "ab")
        True
        """
        return (
            self.generation in (None, attempt.generation)
            and (self.start == attempt.start or "" in (self.start, attempt.start))
            and self.offsets in (None, offsets)
        )


def check_same_attempt(sink: str, where: str, attempt: Attempt, offsets: str, shown: VisibleEpoch) -> None:
    """Refuse an epoch that the store already has from another start, or from other offsets."""
    if not shown.is_attempt(attempt, offsets):
        raise TwoJournals(
            f"sink {sink!r}: epoch {attempt.epoch} is in {where} from another start ({_start(shown)}) than the one "
            f"that was decided here ({_start(attempt)}): two journals write one stream, so one checkpoint is a copy. "
            "Nothing was changed. Go on with the checkpoint that wrote it"
        )


def check_predecessor(sink: str, where: str, attempt: Attempt, holds: Callable[[int], bool]) -> None:
    """Refuse an epoch if the store no longer holds the one before it."""
    if attempt.after is not None and not holds(attempt.after):
        raise Rewound(
            f"sink {sink!r}: epoch {attempt.after} was written to {where} and is not there any more: it was emptied, "
            "created again or restored from an older copy while the stream ran. Nothing of epoch "
            f"{attempt.epoch} was written. Restore it and start the query again; or start the query as it is, which "
            "offers what you can choose"
        )


def _start(one: VisibleEpoch | Attempt) -> str:
    return "unknown" if one.generation is None else f"generation {one.generation}{one.start and f', {one.start}'}"
