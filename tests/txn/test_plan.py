from __future__ import annotations

import pytest

from epochal.txn.errors import DataLost, JournalCorrupt, JournalLost, OffsetsChanged
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Staged
from epochal.txn.plan import (
    Decide,
    Finish,
    Removal,
    choose_winner,
    decided_not_done,
    epochs_in_doubt,
    lowest_not_done,
    next_step,
    removal_of,
)
from epochal.txn.records import (
    NO_WINNER,
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Record,
    Roll,
    Rolled,
    Seal,
    Snapshot,
)
from epochal.txn.view import KEEP_GENERATIONS, View, fold

NOW = "offsets as they are"
OLD = "offsets as they were"


def prepared(epoch: int, generation: int, offsets: str = NOW) -> Prepared:
    return Prepared(epoch, generation, offsets, {"sink": Staged(Handle(1, {"from": generation}), 1)})


def view(*records: Record, base: int = 0) -> View:
    return fold([*(GenerationStarted(number, "query", base=base) for number in range(2, 10)), *records])


def done(epoch: int, generation: int = 1) -> list[Record]:
    return [prepared(epoch, generation), Decided(epoch, generation), Done(epoch, generation)]


def test_nothing_is_to_do_before_spark_has_committed() -> None:
    assert next_step(view(prepared(0, 1)), NO_EPOCH, None) is None


def test_a_committed_epoch_is_decided_for_the_highest_generation() -> None:
    assert next_step(view(prepared(0, 1), prepared(0, 3), prepared(0, 2)), 0, NOW) == Decide(0, 3)


def test_a_seal_cannot_win() -> None:
    assert next_step(view(prepared(0, 1), Seal(0, 2, by=3)), 0, NOW) == Decide(0, 1)


def test_an_attempt_from_other_offsets_cannot_win() -> None:
    assert choose_winner(view(prepared(0, 1), prepared(0, 2, OLD)), 0, NOW) == 1


def test_purged_offsets_do_not_matter_when_all_attempts_agree() -> None:
    assert choose_winner(view(prepared(0, 1), prepared(0, 2)), 0, None) == 2


def test_purged_offsets_are_an_error_when_attempts_differ() -> None:
    with pytest.raises(
        DataLost,
        match=r"epoch 0: 2 attempts planned different offsets, and offsets/0 is gone.* Put it back from a copy",
    ):
        choose_winner(view(prepared(0, 1), prepared(0, 2, OLD)), 0, None)


def test_offsets_that_no_attempt_was_staged_from_are_an_error() -> None:
    with pytest.raises(OffsetsChanged, match="no attempt was staged from the offsets in offsets/0"):
        choose_winner(view(prepared(0, 1, OLD)), 0, NOW)


def test_a_committed_epoch_without_an_attempt_is_an_error_that_names_it() -> None:
    with pytest.raises(JournalLost, match=r"epoch 7: Spark has checkpointed it.*from 7"):
        next_step(view(base=7), 7, NOW)


def test_an_epoch_without_a_winner_in_a_journal_in_use_is_an_error() -> None:
    with pytest.raises(JournalCorrupt, match="epoch 0 is recorded as having no winner"):
        next_step(view(prepared(0, 1), Decided(0, NO_WINNER)), 0, NOW)


def test_only_sealed_attempts_are_no_attempts() -> None:
    with pytest.raises(JournalLost):
        next_step(view(Seal(0, 1, by=2)), 0, NOW)


def test_a_decided_epoch_is_finished_and_the_others_are_losers() -> None:
    step = next_step(view(prepared(0, 1), prepared(0, 2), Seal(0, 3, by=4), Decided(0, 2)), NO_EPOCH, None)

    assert step == Finish(
        0,
        2,
        handles={"sink": Handle(1, {"from": 2})},
        losers=((1, {"sink": Handle(1, {"from": 1})}), (3, {})),
    )


def test_epochs_are_finished_in_order() -> None:
    step = next_step(view(prepared(0, 1), prepared(1, 1), Decided(1, 1)), 1, NOW)

    assert step == Decide(0, 1)


def test_the_next_epoch_comes_after_the_last_one_done() -> None:
    assert next_step(view(*done(0), prepared(1, 1)), 1, NOW) == Decide(1, 1)


def test_nothing_is_to_do_when_all_are_done() -> None:
    assert next_step(view(*done(0), *done(1)), 1, NOW) is None


@pytest.mark.parametrize(
    ("records", "base", "lowest"),
    [
        ([], 0, 0),
        ([], 7, 7),
        (done(0), 0, 1),
        ([Snapshot(4)], 0, 5),
        ([Snapshot(4), *done(5)], 0, 6),
        (done(0), 3, 3),
    ],
)
def test_the_lowest_open_epoch(records: list[Record], base: int, lowest: int) -> None:
    assert lowest_not_done(view(*records, base=base)) == lowest


def test_what_is_held_and_what_is_in_doubt() -> None:
    seen = view(*done(0), prepared(1, 1), prepared(2, 1), Decided(2, 1), prepared(3, 1), prepared(4, 1))

    assert decided_not_done(seen, 3) == [1, 2, 3]
    assert epochs_in_doubt(seen, 3) == [4]
    assert epochs_in_doubt(seen, 1) == [3, 4]


WINNER = [prepared(0, 1), prepared(0, 2), Decided(0, 2)]


@pytest.mark.parametrize(
    ("records", "generation", "verdict"),
    [
        ([], 2, Removal.SEAL_THEN_REMOVE),
        ([], 3, Removal.KEEP),
        ([], 4, Removal.KEEP),
        ([Seal(0, 2, by=3)], 2, Removal.REMOVE),
        ([Seal(0, 3, by=4)], 3, Removal.KEEP),
        ([prepared(0, 2)], 2, Removal.KEEP),
        ([prepared(0, 3)], 3, Removal.KEEP),
        (WINNER, 1, Removal.REMOVE),
        (WINNER, 2, Removal.KEEP),
        (WINNER, 3, Removal.KEEP),
        ([*WINNER, prepared(0, 3)], 3, Removal.REMOVE),
        ([*WINNER, Done(0, 2)], 2, Removal.REMOVE),
        ([*WINNER, Done(0, 2), prepared(0, 4)], 4, Removal.REMOVE),
        ([Snapshot(0)], 2, Removal.REMOVE),
        ([Snapshot(0), Seal(0, 1, by=2), Decided(0, 1)], 1, Removal.REMOVE),
    ],
    ids=[
        "an older driver may still be staging",
        "our own",
        "a newer driver's",
        "sealed",
        "sealed by a newer one, which will see to it",
        "prepared and in doubt",
        "prepared by ourselves",
        "lost",
        "won and not committed everywhere",
        "ours, though another has won",
        "ours, recorded after another had won",
        "done",
        "recorded after all was done",
        "folded away",
        "folded away, with records of a stalled driver",
    ],
)
def test_what_may_be_done_with_a_leftover(records: list[Record], generation: int, verdict: Removal) -> None:
    assert removal_of(view(*records), Attempt("query", 0, generation), newest=3) is verdict


def roll(generation: int, number: int, *, by: int = 0, after: int = 0) -> Roll:
    staged = {} if by else {"sink": Staged(Handle(1, {"from": generation}), 0)}
    return Roll(generation, number, by or generation, after, staged)


STARTED = [GenerationStarted(number, "query", base=0) for number in (1, 2, 3)]
LATER = [GenerationStarted(number, "query", base=0) for number in range(3, KEEP_GENERATIONS + 3)]


@pytest.mark.parametrize(
    ("records", "generation", "verdict"),
    [
        (STARTED, 2, Removal.SEAL_THEN_REMOVE),
        (STARTED, 3, Removal.KEEP),
        ([*STARTED, roll(2, 1, by=3)], 2, Removal.REMOVE),
        ([*STARTED, roll(2, 1)], 2, Removal.KEEP),
        ([*STARTED, roll(3, 1)], 3, Removal.KEEP),
        ([*STARTED, roll(2, 1), roll(2, 2, by=3)], 2, Removal.KEEP),
        ([*STARTED, roll(2, 1), Rolled(2, 1)], 2, Removal.REMOVE),
        ([*STARTED, roll(3, 1), Rolled(3, 1)], 3, Removal.REMOVE),
        ([*STARTED, roll(3, 2)], 3, Removal.REMOVE),
        ([*STARTED, roll(2, 1), Snapshot(0)], 2, Removal.REMOVE),
        ([*LATER, roll(2, 1)], 2, Removal.REMOVE),
        (LATER, 2, Removal.REMOVE),
    ],
    ids=[
        "an older driver may be about to record it",
        "our own",
        "sealed",
        "recorded and not carried out",
        "recorded by ourselves",
        "recorded, and the next one sealed",
        "carried out",
        "carried out by ourselves",
        "folded away, and a later one is there",
        "folded away with its epoch",
        "recorded when its generation was gone",
        "its generation is gone",
    ],
)
def test_what_may_be_done_with_a_leftover_of_a_roll(records: list[Record], generation: int, verdict: Removal) -> None:
    assert removal_of(fold([*done(0), *records]), Attempt("query", 0, generation, 1), newest=3) is verdict


def test_an_attempt_that_was_recorded_after_a_newer_generation_had_rolled_cannot_win() -> None:
    seen = fold([*STARTED, *done(0), roll(2, 1), prepared(1, 1), prepared(1, 2, OLD)])

    assert choose_winner(seen, 1, OLD) == 2
    with pytest.raises(OffsetsChanged):
        choose_winner(seen, 1, NOW)
