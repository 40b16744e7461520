"""The next step, decided from the journal and Spark's commits/. Pure: no I/O, no clock.

Each step concerns the lowest epoch that is not done, because epochs are finished in order. After
each step the caller reads the journal again: another process may have been faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from epochal.txn.errors import PUT_BACK, DataLost, JournalCorrupt, JournalLost, OffsetsChanged
from epochal.txn.model import Attempt, Handle
from epochal.txn.offsets import Match, compare
from epochal.txn.records import Prepared
from epochal.txn.rescaling import refuse_unfinished
from epochal.txn.states import State
from epochal.txn.view import RESTORE, View, handles


@dataclass(frozen=True, slots=True)
class Decide:
    """Record the winner of an epoch that Spark has checkpointed."""

    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Commit the winner in every sink, then remove the losers, then record DONE."""

    epoch: int
    generation: int
    handles: Mapping[str, Handle]
    losers: tuple[tuple[int, Mapping[str, Handle]], ...]


def lowest_not_done(view: View) -> int:
    """The lowest epoch that is not done. Epochs are finished in order, so none above it is done either."""
    return max(view.base, view.done_through + 1)


def next_step(view: View, committed: int, offsets: str | None) -> Decide | Finish | None:
    """The next step, or None if every decided epoch is done.

    `offsets` is the digest of the offsets that the checkpoint has for the lowest epoch that is not done.
    """
    epoch = lowest_not_done(view)
    winner = view.winner(epoch)
    if winner is not None:
        attempts = sorted(view.attempts[epoch].items(), key=lambda item: item[0])
        others = [(g, record) for g, record in attempts if g != winner.generation]
        losers = tuple((g, handles(r) if isinstance(r, Prepared) else {}) for g, r in others)
        return Finish(epoch, winner.generation, handles(winner), losers)
    if epoch in view.undecidable and epoch <= committed:
        raise JournalCorrupt(
            f"epoch {epoch} is recorded as having no winner, as only a closed journal may, but this journal is in use; "
            f"{RESTORE}"
        )
    if epoch <= committed:
        if not view.prepared(epoch):
            refuse_unfinished(view, f"epoch {epoch} cannot be finished")
        return Decide(epoch, choose_winner(view, epoch, offsets))
    return None


def choose_winner(view: View, epoch: int, offsets: str | None) -> int:
    """The winner: the highest generation that prepared the epoch from the offsets that the checkpoint has."""
    prepared = {g: record for g, record in view.prepared(epoch).items() if not view.is_overtaken(epoch, g)}
    if not prepared:
        raise JournalLost(
            f"epoch {epoch}: Spark has checkpointed it, but the journal has no record of it (it covers epochs from "
            f"{view.base}). Either the journal lost records: restore it from a copy; or the query ran without "
            "epochal in between"
        )
    digests = [record.offsets for record in prepared.values()]
    if offsets is None and any(compare(one, two) is Match.DIFFERENT for one in digests for two in digests):
        raise DataLost(
            f"epoch {epoch}: {len(prepared)} attempts planned different offsets, and offsets/{epoch} is gone, so "
            f"nothing says which of them Spark has checkpointed. {PUT_BACK}"
        )
    if offsets is None:
        return max(prepared)
    matches = {g: compare(record.offsets, offsets) for g, record in prepared.items()}
    # An unproven match is still of the same checkpoint and may win, but only if there is no proven one.
    same = [g for g, match in matches.items() if match is Match.SAME]
    matching = same or [g for g, match in matches.items() if match is Match.UNPROVEN]
    if not matching:
        raise OffsetsChanged(
            f"epoch {epoch}: no attempt was staged from the offsets in offsets/{epoch}; the checkpoint was changed by "
            "hand or restored from a copy. Put back the checkpoint that belongs to the journal"
        )
    return max(matching)


class Removal(Enum):
    """Whether staged data that a store still has may be removed."""

    KEEP = "keep"
    SEAL_THEN_REMOVE = "seal, then remove"
    REMOVE = "remove"


def removal_of(view: View, attempt: Attempt, *, newest: int) -> Removal:
    """Whether the rules allow to remove what one attempt left; `newest` and later generations may be alive."""
    if attempt.start and view.start_of(attempt.generation) not in ("", attempt.start):
        # It belongs to a copy of this journal, or to a journal that was lost. Once this journal has finished the epoch,
        # no other can commit it.
        return Removal.REMOVE if attempt.epoch <= view.done_through else Removal.KEEP
    if attempt.roll:
        return _removal_of_roll(view, attempt, newest=newest)
    if attempt.generation >= newest and not view.is_decided(attempt.epoch):
        return Removal.KEEP
    match view.state(attempt.epoch, attempt.generation):
        case State.STAGING:
            # Its driver may be alive and about to record PREPARED: make that impossible first.
            return Removal.KEEP if attempt.generation >= newest else Removal.SEAL_THEN_REMOVE
        case State.PREPARED | State.DECIDED:
            return Removal.KEEP  # in doubt, or about to be committed: perhaps the only copy
        case _:
            return Removal.REMOVE


def _removal_of_roll(view: View, attempt: Attempt, *, newest: int) -> Removal:
    key = attempt.generation, attempt.roll
    if any((r.generation, r.number) == key for r in view.pending_rolls()):
        return Removal.KEEP  # perhaps the only copy; carrying it out removes it
    upcoming = view.next_roll(attempt.generation) if attempt.generation in view.generations else None
    if upcoming is not None and attempt.roll >= upcoming:
        # Its driver may be alive and about to record it: make that impossible first.
        return Removal.KEEP if attempt.generation >= newest else Removal.SEAL_THEN_REMOVE
    return Removal.REMOVE


def epochs_in_doubt(view: View, committed: int) -> list[int]:
    """Epochs that are prepared, and that Spark has not checkpointed yet."""
    return [e for e in view.waiting() if e > committed and e not in view.decided and view.prepared(e)]


def decided_not_done(view: View, committed: int) -> list[int]:
    """Epochs that are decided, by Spark's checkpoint or by a record here, and not done."""
    return sorted({e for e in view.waiting() if e <= committed or e in view.decided})
