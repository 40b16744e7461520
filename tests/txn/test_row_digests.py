from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.row_digests import RowDigest, digest_text, is_digest, lines_of, total

hashes = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.lists(hashes))
def test_digests_add_up_to_that_of_all_rows_however_rows_are_grouped(rows: list[int]) -> None:
    parts = [RowDigest(1, digest_text(row)) for row in rows]
    cut = len(parts) // 2

    whole = RowDigest(len(rows), digest_text(sum(rows))) if rows else RowDigest()
    assert total(parts) == whole
    assert total(reversed(parts)) == whole
    assert total(parts[:cut]) + total(parts[cut:]) == whole


@given(st.lists(st.tuples(hashes, st.integers(0, 5)), min_size=1))
def test_lines_are_added_up_beside_the_digest(rows: list[tuple[int, int]]) -> None:
    found = total(RowDigest(1, digest_text(value, lines)) for value, lines in rows)

    assert lines_of(found.digest) == sum(lines for _, lines in rows)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (RowDigest(1, digest_text(1)), RowDigest(1)),
        (RowDigest(1), RowDigest(1, digest_text(1))),
        (RowDigest(1, digest_text(1)), RowDigest(1, digest_text(1, 1))),
        (RowDigest(1, digest_text(1)), RowDigest(1, "sha3:77")),
    ],
)
def test_rows_without_a_digest_or_with_one_of_another_kind_take_it_away(first: RowDigest, second: RowDigest) -> None:
    assert first + second == RowDigest(2)


@pytest.mark.parametrize("nothing", [RowDigest(), RowDigest(0, digest_text(0)), RowDigest(0, digest_text(0, 0))])
def test_an_epoch_without_rows_changes_nothing(nothing: RowDigest) -> None:
    some = RowDigest(2, digest_text(7, 3))

    assert some + nothing == nothing + some == some
    assert nothing + nothing == RowDigest()


def test_only_what_is_spelled_right_is_a_digest() -> None:
    assert is_digest(digest_text(2**64 + 5, 3))
    assert not any(is_digest(text) for text in ("x64:5", "x64:00000000000000FF", "x65:00000000000000ff", None, 5))
