from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.tallies import Tally, is_digest, lines_of, spelled, total

hashes = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.lists(hashes))
def test_digests_add_up_to_that_of_all_rows_however_rows_are_grouped(rows: list[int]) -> None:
    parts = [Tally(1, spelled(row)) for row in rows]
    cut = len(parts) // 2

    whole = Tally(len(rows), spelled(sum(rows))) if rows else Tally()
    assert total(parts) == whole
    assert total(reversed(parts)) == whole
    assert total(parts[:cut]) + total(parts[cut:]) == whole


@given(st.lists(st.tuples(hashes, st.integers(0, 5)), min_size=1))
def test_lines_are_added_up_beside_the_digest(rows: list[tuple[int, int]]) -> None:
    found = total(Tally(1, spelled(value, lines)) for value, lines in rows)

    assert lines_of(found.digest) == sum(lines for _, lines in rows)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Tally(1, spelled(1)), Tally(1)),
        (Tally(1), Tally(1, spelled(1))),
        (Tally(1, spelled(1)), Tally(1, spelled(1, 1))),
        (Tally(1, spelled(1)), Tally(1, "sha3:77")),
    ],
)
def test_rows_without_a_digest_or_with_one_of_another_kind_take_it_away(first: Tally, second: Tally) -> None:
    assert first + second == Tally(2)


@pytest.mark.parametrize("nothing", [Tally(), Tally(0, spelled(0)), Tally(0, spelled(0, 0))])
def test_an_epoch_without_rows_changes_nothing(nothing: Tally) -> None:
    some = Tally(2, spelled(7, 3))

    assert some + nothing == nothing + some == some
    assert nothing + nothing == Tally()


def test_only_what_is_spelled_right_is_a_digest() -> None:
    assert is_digest(spelled(2**64 + 5, 3))
    assert not any(is_digest(text) for text in ("x64:5", "x64:00000000000000FF", "x65:00000000000000ff", None, 5))
