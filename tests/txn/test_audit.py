"""What an audit says, given what was staged and what a store holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.audit import AuditVerdict, Difference, Expected, StoreReport
from epochal.txn.audit_comparison import compare_with_store
from epochal.txn.row_digests import RowDigest, digest_text, total

EPOCHS = {
    0: RowDigest(2, digest_text(20)),
    1: RowDigest(3, digest_text(31)),
    2: RowDigest(0),
    3: RowDigest(1, digest_text(5)),
}
BARE = {epoch: RowDigest(digest.rows) for epoch, digest in EPOCHS.items()}


def given_(epochs: dict[int, RowDigest] = EPOCHS, **more: Any) -> Expected:
    return Expected(since=0, epochs=epochs, through=3, **more)


def found(epochs: dict[int, RowDigest] | None = None, **more: Any) -> StoreReport:
    return StoreReport(**{"epochs_present": frozenset(EPOCHS), "epochs": EPOCHS if epochs is None else epochs, **more})


def said(judgement: Any) -> list[str]:
    return [difference.what for difference in judgement.differences]


def test_the_same_rows_in_every_epoch_are_exact() -> None:
    answer = compare_with_store(given_(), found())

    assert (answer.verdict, answer.digests, answer.epochs) == (AuditVerdict.EXACT, "equal", 4)
    assert answer.expected == answer.found == RowDigest(6, digest_text(56))


def test_without_digests_rows_alone_are_exact_and_it_is_told() -> None:
    answer = compare_with_store(given_(BARE), found())

    assert (answer.verdict, answer.digests) == (AuditVerdict.EXACT, "not taken")


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (RowDigest(4, digest_text(31)), "3 rows were staged and 4 are there"),
        (RowDigest(1, digest_text(31)), "3 rows were staged and 1 is there"),
        (RowDigest(3, digest_text(32)), "3 rows are there, but not those that were staged"),
    ],
)
def test_an_epoch_with_other_rows_is_named(there: RowDigest, what: str) -> None:
    answer = compare_with_store(given_(), found({**EPOCHS, 1: there}))

    assert answer.verdict is AuditVerdict.DIFFERS
    assert answer.differences == (Difference(what, 1),)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 3), min_size=1), st.data())
def test_any_single_change_of_a_count_is_found(rows: dict[int, int], data: st.DataObject) -> None:
    wanted = {epoch: RowDigest(count, digest_text(count * 977)) for epoch, count in rows.items()}
    epoch = data.draw(st.sampled_from(sorted(wanted)))
    other = data.draw(st.integers(0, 5).filter(lambda count: count != rows[epoch]))
    there = {**wanted, epoch: RowDigest(other, digest_text(other * 977))}
    expected = Expected(since=0, epochs=wanted, through=9)
    landed = frozenset(wanted)

    assert compare_with_store(expected, StoreReport(epochs_present=landed, epochs=wanted)).verdict is AuditVerdict.EXACT
    assert (
        compare_with_store(expected, StoreReport(epochs_present=landed, epochs=there)).verdict is AuditVerdict.DIFFERS
    )
    assert (
        compare_with_store(expected, StoreReport(epochs_present=landed, total=total(there.values()))).verdict
        is AuditVerdict.DIFFERS
    )


def test_in_total_is_as_good_as_epoch_by_epoch() -> None:
    answer = compare_with_store(
        given_(), found({}, total=RowDigest(6, digest_text(56)), ambiguous=("rewritten since",))
    )

    assert (answer.verdict, answer.unproven) == (AuditVerdict.EXACT, ())


def test_a_total_that_differs_leaves_what_could_not_be_told_apart_in_the_answer() -> None:
    answer = compare_with_store(
        given_(), found({}, total=RowDigest(6, digest_text(57)), ambiguous=("rewritten since",))
    )

    assert answer.verdict is AuditVerdict.DIFFERS
    assert said(answer) == ["in total 6 rows are there, but not those that were staged"]
    assert answer.unproven == ("rewritten since",)


def test_files_that_hold_rows_of_several_epochs_are_exact_if_the_sum_is() -> None:
    shifted = {0: RowDigest(), 1: RowDigest(5, digest_text(51)), 2: RowDigest(), 3: EPOCHS[3]}

    assert (
        compare_with_store(given_(), found(shifted, total=RowDigest(6, digest_text(56)))).verdict is AuditVerdict.EXACT
    )
    assert compare_with_store(given_(BARE), found(shifted, total=RowDigest(6))).verdict is AuditVerdict.EXACT


def test_without_digests_a_row_too_many_in_an_early_epoch_is_not_made_good_by_a_later_one() -> None:
    shifted = {0: RowDigest(3), 1: RowDigest(2), 2: RowDigest(), 3: RowDigest(1)}

    assert compare_with_store(given_(BARE), found(shifted, total=RowDigest(6))).verdict is AuditVerdict.DIFFERS


def test_an_epoch_that_the_store_lacks_is_missing() -> None:
    answer = compare_with_store(given_(), found(epochs_present=frozenset({0, 1, 2})))

    assert answer.differences == (Difference("is done, but the store does not have it", 3),)


def test_an_epoch_that_was_never_given_is_told() -> None:
    rest = {epoch: digest for epoch, digest in EPOCHS.items() if epoch != 1}
    answer = compare_with_store(given_(rest), found(rest))

    assert answer.differences == (Difference("is in the store, but the journal has no such epoch", 1),)


def test_epochs_that_were_adopted_were_never_given_and_are_no_difference() -> None:
    rest = {epoch: digest for epoch, digest in EPOCHS.items() if epoch > 1}
    answer = compare_with_store(given_(rest, adopted=1), found(rest))

    assert answer.verdict is AuditVerdict.NOT_PROVABLE
    assert "adopt=" in answer.unproven[0]


def test_epochs_later_than_the_last_that_is_done_are_under_way() -> None:
    assert compare_with_store(given_(), found(epochs_present=frozenset([*EPOCHS, 4]))).verdict is AuditVerdict.EXACT


def test_what_is_folded_is_compared_in_total() -> None:
    wanted = Expected(
        since=0,
        epochs={3: EPOCHS[3]},
        folded=RowDigest(5, digest_text(51)),
        folded_epochs=3,
        folded_through=2,
        through=3,
    )
    wrong = {**EPOCHS, 0: RowDigest(2, digest_text(21))}

    assert compare_with_store(wanted, found()).verdict is AuditVerdict.EXACT
    assert said(compare_with_store(wanted, found(wrong))) == [
        "epochs 0 to 2: 5 rows are there, but not those that were staged"
    ]
    lacking = compare_with_store(wanted, found({3: EPOCHS[3]}, epochs_present=frozenset({1, 2, 3})))
    assert said(lacking) == ["of epochs 0 to 2 the store has 2, but 3 were staged"]


def test_a_store_that_remembers_each_epoch_makes_good_what_is_folded() -> None:
    wanted = Expected(
        since=0,
        epochs={3: EPOCHS[3]},
        folded=RowDigest(5, digest_text(51)),
        folded_epochs=3,
        folded_through=2,
        through=3,
    )
    wrong = {**EPOCHS, 0: RowDigest(2, digest_text(21))}

    assert compare_with_store(wanted, found(recorded=EPOCHS)).verdict is AuditVerdict.EXACT
    assert compare_with_store(wanted, found(wrong, recorded=EPOCHS)).differences[0].epoch == 0
    assert "differ in the store's own records" in said(compare_with_store(wanted, found(wrong, recorded=wrong)))[0]


def test_a_record_of_the_store_that_is_not_the_journals_is_told() -> None:
    answer = compare_with_store(given_(), found(recorded={**EPOCHS, 1: RowDigest(3, digest_text(1))}))

    assert answer.differences == (Difference("the store's own record of it differs from the journal", 1),)


def test_what_an_older_version_folded_away_is_not_provable() -> None:
    wanted = Expected(since=2, epochs={2: EPOCHS[2], 3: EPOCHS[3]}, folded_through=1, through=3)
    answer = compare_with_store(wanted, found())

    assert answer.verdict is AuditVerdict.NOT_PROVABLE
    assert "epochs up to 1" in answer.unproven[0]


def test_what_the_stores_log_does_not_go_back_to_is_not_missing() -> None:
    answer = compare_with_store(given_(), found({3: EPOCHS[3]}, epochs_present=frozenset({3}), complete_from=3))

    assert answer.verdict is AuditVerdict.NOT_PROVABLE
    assert answer.differences == ()


def test_of_epochs_that_replace_each_other_only_the_last_counts() -> None:
    answer = compare_with_store(given_(), found({3: EPOCHS[3]}, only_from=3))

    assert (answer.verdict, answer.expected, answer.found) == (AuditVerdict.EXACT, EPOCHS[3], EPOCHS[3])
    assert compare_with_store(given_(), found({3: RowDigest(2)}, only_from=3)).verdict is AuditVerdict.DIFFERS


def test_where_lines_are_counted_rows_are_not() -> None:
    wanted = given_({0: RowDigest(2, digest_text(9, 3))})
    landed = frozenset({0})

    same = compare_with_store(wanted, StoreReport(epochs_present=landed, epochs={0: RowDigest(3, digest_text(9, 3))}))
    more = compare_with_store(wanted, StoreReport(epochs_present=landed, epochs={0: RowDigest(4, digest_text(9, 4))}))

    assert (same.verdict, same.found) == (AuditVerdict.EXACT, RowDigest(2, digest_text(9, 3)))
    assert said(more) == ["3 lines were staged and 4 are there"]


def test_a_sink_that_says_nothing_leaves_everything_unproven() -> None:
    answer = compare_with_store(given_(), StoreReport(unproven=("the sink has no audit",)))

    assert (answer.verdict, answer.found) == (AuditVerdict.NOT_PROVABLE, None)


def test_a_stream_without_epochs_is_exact() -> None:
    assert (
        compare_with_store(Expected(since=0, epochs={}), StoreReport(epochs_present=frozenset())).verdict
        is AuditVerdict.EXACT
    )
