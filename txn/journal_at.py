"""What of a journal belongs to a copy of its stream at an epoch that is done. Pure: no I/O, no clock.

A copy has the records of that epoch and of all before it, and every start. Attempts at later epochs are left out, and
so is what was rolled after one: whoever goes on from the copy writes those epochs anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from epochal.txn.errors import JournalCorrupt
from epochal.txn.records import (
    GenerationStarted,
    Record,
    Roll,
    Rolled,
    Snapshot,
    StateRecord,
    epoch_of_name,
)
from epochal.txn.view import fold


def records_at(records: Mapping[str, Record], epoch: int) -> dict[str, Record]:
    """The records, by name, that a copy at this epoch has. JournalCorrupt if the rest is not a whole journal.

    That happens if epochs beyond it are folded away already: a copy of a newer epoch is needed then.
    """
    rolls = {(r.generation, r.number): r for r in records.values() if isinstance(r, Roll)}
    kept = {name: record for name, record in records.items() if _belongs(name, record, epoch, rolls)}
    if fold(kept.values(), stored={}).done_through != epoch:
        raise JournalCorrupt(f"epoch {epoch} is not done in this journal, or was folded away with later ones")
    return kept


def segments_at(records: Mapping[str, Record]) -> tuple[str, ...]:
    """The names of the segments that the newest of some state records lists."""
    states = [record for record in records.values() if isinstance(record, StateRecord)]
    newest = max(states, key=lambda record: record.number, default=None)
    return () if newest is None else tuple(ref.name for ref in newest.segments)


def _belongs(name: str, record: Record, epoch: int, rolls: Mapping[tuple[int, int], Roll]) -> bool:
    match record:
        case GenerationStarted():
            return True
        case Snapshot() | StateRecord():
            return record.through <= epoch
        case Roll():
            return record.after <= epoch
        case Rolled():
            roll = rolls.get((record.generation, record.number))
            return roll is not None and roll.after <= epoch
    of = epoch_of_name(name)
    return of is not None and of <= epoch
