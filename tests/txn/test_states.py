from __future__ import annotations

import itertools

import pytest

from epochal.txn.errors import JournalCorrupt
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Record, Seal, Snapshot
from epochal.txn.states import NEXT, State, advance
from epochal.txn.view import fold

LEGAL = {
    (State.STAGING, State.PREPARED),
    (State.STAGING, State.SEALED),
    (State.SEALED, State.ABORTED),
    (State.PREPARED, State.DECIDED),
    (State.PREPARED, State.LOST),
    (State.LOST, State.ABORTED),
    (State.DECIDED, State.DONE),
}
STARTS = [GenerationStarted(number, "query", base=0) for number in (1, 2)]


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)), ids=lambda state: state.value)
def test_only_the_tables_steps_are_allowed(old: State, new: State) -> None:
    if (old, new) in LEGAL:
        assert advance(old, new, what="epoch 1") is new
    else:
        with pytest.raises(JournalCorrupt, match=f"epoch 1: {new.value} cannot follow {old.value}"):
            advance(old, new, what="epoch 1")


def test_every_state_is_in_the_table() -> None:
    assert set(NEXT) == set(State)


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], State.STAGING),
        ([Seal(0, 1, by=2)], State.SEALED),
        ([Prepared(0, 1, "", {})], State.PREPARED),
        ([Prepared(0, 1, "", {}), Decided(0, 1)], State.DECIDED),
        ([Prepared(0, 1, "", {}), Decided(0, 1), Done(0, 1)], State.DONE),
        ([Prepared(0, 1, "", {}), Prepared(0, 2, "", {}), Decided(0, 2)], State.LOST),
        ([Seal(0, 1, by=2), Prepared(0, 2, "", {}), Decided(0, 2), Done(0, 2)], State.SEALED),
        ([Snapshot(0), Prepared(0, 1, "", {})], State.LOST),
        ([Snapshot(0), Seal(0, 1, by=2), Decided(0, 1)], State.LOST),
        ([Snapshot(0)], State.LOST),
    ],
    ids=lambda value: " ".join(record.kind for record in value) if isinstance(value, list) else value.value,
)
def test_an_attempts_state_is_read_from_the_records(records: list[Record], state: State) -> None:
    for order in itertools.permutations(records):
        assert fold([*STARTS, *order]).state(0, 1) is state


def test_an_attempt_from_before_the_journals_time_has_lost() -> None:
    view = fold([GenerationStarted(1, "query", base=7), Prepared(3, 1, "", {})])

    assert view.state(3, 1) is State.LOST


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([Seal(0, 1, by=2), Decided(0, 1)], "epoch 0, generation 1: decided cannot follow sealed"),
        ([Decided(0, 1)], "epoch 0 was decided for generation 1, whose PREPARED record is missing"),
        ([Prepared(0, 1, "", {}), Done(0, 1)], "epoch 0 is done but was not decided for generation 1"),
        (
            [Prepared(0, 1, "", {}), Prepared(0, 2, "", {}), Decided(0, 2), Done(0, 1)],
            "epoch 0 is done but was not decided for generation 1",
        ),
        (
            [GenerationStarted(3, "other", base=0)],
            "the journal holds records of several queries: other, query",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_records_that_contradict_each_other_are_corrupt(records: list[Record], message: str) -> None:
    with pytest.raises(JournalCorrupt, match=message):
        fold([*STARTS, *records])


def test_records_below_the_floor_contradict_nothing() -> None:
    view = fold([*STARTS, Snapshot(5), Decided(3, 1), Done(4, 9), Seal(3, 1, by=2)])

    assert view.done_through == 5
    assert view.waiting() == []
