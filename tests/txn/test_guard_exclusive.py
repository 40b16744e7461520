"""A target that only one stream may write to, such as totals: `new` is neither offered nor accepted."""

from __future__ import annotations

import pytest

from epochal.txn.choices import Choices
from epochal.txn.errors import ForeignTarget, Refused, Rewound
from epochal.txn.guard import Observed, check_start
from epochal.txn.model import Memory
from tests.txn.test_guard import EMPTY, OTHER, QUERY, TAG, journal, memory, observed

NEW = Choices(new=frozenset({f"{TAG}@2", f"{TAG}@none", "99999999@5"}))
TOTALS = Memory("shop.totals", enrolled=True, last=2, exclusive=True)


@pytest.mark.parametrize(
    ("found", "error", "adopt"),
    [
        (observed(EMPTY, memory(enrolled=False, others={OTHER: 5}, exclusive=True), -1), ForeignTarget, "99999999@5"),
        (observed(journal(0), memory(2, exclusive=True), committed=0), Rewound, f"{TAG}@2"),
        (observed(journal(0, 1, 2), memory(2, exclusive=True), committed=0), Rewound, f"{TAG}@2"),
    ],
)
def test_only_adopt_is_offered_and_it_works(found: Observed, error: type[Refused], adopt: str) -> None:
    with pytest.raises(error) as raised:
        check_start(found, NEW)

    assert f"adopt='{adopt}'" in str(raised.value)
    assert "\n  new=" not in str(raised.value)
    assert "Only one stream may write to sink 'lake', so new= is not offered" in str(raised.value)
    check_start(found, Choices(adopt=frozenset({adopt})))


def test_where_nothing_can_be_chosen_no_choice_is_announced() -> None:
    with pytest.raises(ForeignTarget) as raised:
        check_start(observed(journal(0, 1, 2), memory(2, adopted_by=OTHER, exclusive=True), committed=2), NEW)

    assert "Choose" not in str(raised.value)
    assert "to start over, write to another target" in str(raised.value)


def test_a_stream_with_such_a_sink_does_not_begin_anew_for_the_sake_of_another() -> None:
    found = observed(journal(0), memory(2), committed=0)
    both = Observed(
        lineage=QUERY,
        before=found.before,
        memories={**found.memories, "totals": TOTALS},
        committed=0,
        after=found.after,
    )

    assert check_start(found, NEW).reincarnate
    with pytest.raises(Rewound, match="Only one stream may write to sink 'totals'"):
        check_start(both, NEW)


def test_an_earlier_incarnation_is_another_stream_to_it() -> None:
    again = Observed(
        lineage=f"{QUERY}~2",
        before=EMPTY,
        memories={"lake": memory(enrolled=False, others={QUERY: 3}, exclusive=True)},
        committed=-1,
        after=EMPTY,
    )

    with pytest.raises(ForeignTarget, match=f"adopt='{TAG}@3'"):
        check_start(again, Choices())


def test_beside_it_another_sink_may_still_share_its_target_with_a_new_stream() -> None:
    shared = memory(enrolled=False, others={OTHER: 5})
    found = Observed(
        lineage=QUERY,
        before=EMPTY,
        memories={"lake": shared, "totals": Memory("shop.totals", exclusive=True)},
        committed=-1,
        after=EMPTY,
    )

    assert not check_start(found, NEW).reincarnate
