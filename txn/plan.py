"""What is left to do, from what the journal and Spark's commits/ say. Pure: no I/O, no clock.

The plan is for the lowest epoch that is not done, because epochs are finished in order. Whoever
carries it out reads the journal again afterwards: others may have been faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from epochal.txn.errors import DataLost, JournalCorrupt, JournalLost, OffsetsChanged
from epochal.txn.model import Attempt, Handle
from epochal.txn.offsets import Match, compare
from epochal.txn.records import Prepared
from epochal.txn.states import State
from epochal.txn.view import RESTORE, View, handles


@dataclass(frozen=True, slots=True)
class Decide:
    """Name the winner of an epoch that Spark has checkpointed."""

    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Commit the winner in every sink, then remove the losers, then record DONE."""

    epoch: int
    generation: int
    handles: Mapping[str, Handle]
    losers: tuple[tuple[int, Mapping[str, Handle]], ...]


def lowest_open(view: View) -> int:
    """The lowest epoch that is not done; epochs are finished in order, so all above are open too."""
    return max(view.base, view.done_through + 1)


def next_step(view: View, committed: int, offsets: str | None) -> Decide | Finish | None:
    """The next thing to do, or None if every decided epoch is done.

    `offsets` is the digest of the lowest open epoch's offsets as the checkpoint has them.
    """
    epoch = lowest_open(view)
    winner = view.winner(epoch)
    if winner is not None:
        attempts = sorted(view.attempts[epoch].items(), key=lambda item: item[0])
        others = [(g, record) for g, record in attempts if g != winner.generation]
        losers = tuple((g, handles(r) if isinstance(r, Prepared) else {}) for g, r in others)
        return Finish(epoch, winner.generation, handles(winner), losers)
    if epoch in view.undecidable and epoch <= committed:
        raise JournalCorrupt(
            f"epoch {epoch} is decided for nobody, as in a journal that was closed, and this one is in use: {RESTORE}"
        )
    if epoch <= committed:
        return Decide(epoch, choose(view, epoch, offsets))
    return None


def choose(view: View, epoch: int, offsets: str | None) -> int:
    """The winner: the highest generation that prepared the epoch with the offsets that it has."""
    prepared = {g: record for g, record in view.prepared(epoch).items() if not view.is_overtaken(epoch, g)}
    if not prepared:
        raise JournalLost(
            f"epoch {epoch}: Spark has checkpointed it, but the journal has no record of it (it answers for epochs "
            f"from {view.base}). Either the journal lost records: restore it from a copy; or the query ran without "
            "epochal in between"
        )
    digests = [record.offsets for record in prepared.values()]
    if offsets is None and any(compare(one, two) is Match.DIFFERENT for one in digests for two in digests):
        raise DataLost(
            f"epoch {epoch}: {len(prepared)} attempts planned different offsets, and offsets/{epoch} is gone"
        )
    if offsets is None:
        return max(prepared)
    found = {g: compare(record.offsets, offsets) for g, record in prepared.items()}
    # What is not proven is of the same checkpoint all the same; but where one attempt is, it has the better claim.
    same = [g for g, match in found.items() if match is Match.SAME]
    matching = same or [g for g, match in found.items() if match is Match.UNPROVEN]
    if not matching:
        raise OffsetsChanged(
            f"epoch {epoch}: offsets/{epoch} is not what any attempt was staged from; the checkpoint was changed by "
            "hand or restored from a copy. Put back the checkpoint that belongs to the journal"
        )
    return max(matching)


class Sweep(Enum):
    """What may be done with staged data that a store still has."""

    KEEP = "keep"
    SEAL_THEN_REMOVE = "seal, then remove"
    REMOVE = "remove"


def sweep(view: View, attempt: Attempt, *, newest: int) -> Sweep:
    """What the rules allow for one leftover; `newest` and later generations may be alive."""
    if attempt.start and view.start_of(attempt.generation) not in ("", attempt.start):
        # Of a copy of this journal, or of one that was lost. Once its epoch is there from us, nobody can commit it.
        return Sweep.REMOVE if attempt.epoch <= view.done_through else Sweep.KEEP
    if attempt.roll:
        return _sweep_roll(view, attempt, newest=newest)
    if attempt.generation >= newest and not view.is_decided(attempt.epoch):
        return Sweep.KEEP
    match view.state(attempt.epoch, attempt.generation):
        case State.STAGING:
            # Its driver may be alive and about to record PREPARED: close that door first.
            return Sweep.KEEP if attempt.generation >= newest else Sweep.SEAL_THEN_REMOVE
        case State.PREPARED | State.DECIDED:
            return Sweep.KEEP  # in doubt, or about to be committed: perhaps the only copy
        case _:
            return Sweep.REMOVE


def _sweep_roll(view: View, attempt: Attempt, *, newest: int) -> Sweep:
    key = attempt.generation, attempt.roll
    if any((r.generation, r.number) == key for r in view.to_carry_out()):
        return Sweep.KEEP  # perhaps the only copy; carrying it out removes it
    upcoming = view.next_roll(attempt.generation) if attempt.generation in view.generations else None
    if upcoming is not None and attempt.roll >= upcoming:
        # Its driver may be alive and about to record it: close that door first.
        return Sweep.KEEP if attempt.generation >= newest else Sweep.SEAL_THEN_REMOVE
    return Sweep.REMOVE


def in_doubt(view: View, committed: int) -> list[int]:
    """Epochs that were prepared and wait for Spark's word."""
    return [e for e in view.waiting() if e > committed and e not in view.decided and view.prepared(e)]


def held(view: View, committed: int) -> list[int]:
    """Epochs that are decided, by Spark or by us, and not done."""
    return sorted({e for e in view.waiting() if e <= committed or e in view.decided})
