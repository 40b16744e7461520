"""What of a journal belongs to a copy of its stream at an epoch."""

from __future__ import annotations

import pytest

from epochal.txn.errors import JournalCorrupt
from epochal.txn.journal_at import records_at, segments_at
from epochal.txn.model import Handle, Staged
from epochal.txn.records import (
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Record,
    Roll,
    Rolled,
    Seal,
    Snapshot,
    StateRecord,
)
from epochal.txn.state.segments import SegmentRef
from epochal.txn.view import fold

STAGED = {"sink": Staged(Handle(1, {}), 3)}


def epoch(number: int, generation: int = 1, *, rolls: int = 0) -> list[Record]:
    """An epoch that is done."""
    prepared = Prepared(number, generation, f"v2:{number}:=:0", STAGED, rolls=rolls)
    return [prepared, Decided(number, generation), Done(number, generation)]


def journal(*records: Record) -> dict[str, Record]:
    starts: list[Record] = [GenerationStarted(1, "query", 0), GenerationStarted(2, "query", 0)]
    return {record.name: record for record in [*starts, *records]}


def test_later_epochs_are_left_out_and_later_starts_are_not() -> None:
    whole = journal(*epoch(0), *epoch(1), *epoch(2, 2), Prepared(3, 2, "v2:3:=:0", STAGED), Seal(3, 1, 2))
    kept = records_at(whole, 1)

    assert {*kept} == {*journal(*epoch(0), *epoch(1))}
    assert fold(kept.values(), stored={}).done_through == 1


def test_what_was_rolled_after_the_epoch_belongs_to_it_and_what_was_rolled_later_does_not() -> None:
    first, second = Roll(1, 1, 1, 0, STAGED), Roll(1, 2, 1, 1, STAGED)
    whole = journal(*epoch(0), first, Rolled(1, 1), *epoch(1, rolls=1), second, Rolled(1, 2), *epoch(2, rolls=1))

    assert {*records_at(whole, 0)} == {*journal(*epoch(0), first, Rolled(1, 1))}
    assert {*records_at(whole, 1)} == {
        *journal(*epoch(0), first, Rolled(1, 1), *epoch(1, rolls=1), second, Rolled(1, 2))
    }


def test_an_epoch_that_is_folded_away_cannot_be_copied_any_more() -> None:
    whole = journal(Snapshot(5), *epoch(6), *epoch(7))

    assert fold(records_at(whole, 6).values(), stored={}).done_through == 6
    for gone in (4, 8):
        with pytest.raises(JournalCorrupt, match=f"epoch {gone} is not done"):
            records_at(whole, gone)


def test_only_the_segments_of_the_newest_state_are_copied() -> None:
    def ref(number: int) -> SegmentRef:
        return SegmentRef(f"m{number:012d}-00-5d41.seg", "5d41", 1, 1, 0, number, clean=True)

    states = journal(StateRecord(1, 1, (ref(1),)), StateRecord(2, 3, (ref(1), ref(2))))

    assert segments_at(states) == (ref(1).name, ref(2).name)
    assert segments_at(records_at(states | journal(*epoch(0), *epoch(1), *epoch(2)), 2)) == (ref(1).name,)
    assert segments_at({}) == ()
