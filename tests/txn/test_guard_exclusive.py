"""A target that takes one stream only, such as totals: `new` is neither offered nor accepted."""

from __future__ import annotations

import pytest

from epochal.txn.errors import ForeignTarget, Refused, Rewound
from epochal.txn.guard import Choices, Evidence, check_start
from epochal.txn.model import Memory
from tests.txn.test_guard import EMPTY, OTHER, QUERY, TAG, evidence, journal, memory

NEW = Choices(new=frozenset({f"{TAG}@2", f"{TAG}@none", "99999999@5"}))
TOTALS = Memory("shop.totals", enrolled=True, last=2, exclusive=True)


@pytest.mark.parametrize(
    ("found", "error", "adopt"),
    [
        (evidence(EMPTY, memory(enrolled=False, others={OTHER: 5}, exclusive=True), -1), ForeignTarget, "99999999@5"),
        (evidence(journal(0), memory(2, exclusive=True), committed=0), Rewound, f"{TAG}@2"),
        (evidence(journal(0, 1, 2), memory(2, exclusive=True), committed=0), Rewound, f"{TAG}@2"),
    ],
)
def test_only_adopt_is_offered_and_it_works(found: Evidence, error: type[Refused], adopt: str) -> None:
    with pytest.raises(error) as told:
        check_start(found, NEW)

    assert f"adopt='{adopt}'" in str(told.value)
    assert "\n  new=" not in str(told.value)
    assert "Sink 'lake' takes one stream only, so there is no new= here" in str(told.value)
    check_start(found, Choices(adopt=frozenset({adopt})))


def test_where_nothing_can_be_chosen_no_choice_is_announced() -> None:
    with pytest.raises(ForeignTarget) as told:
        check_start(evidence(journal(0, 1, 2), memory(2, adopted_by=OTHER, exclusive=True), committed=2), NEW)

    assert "Choose" not in str(told.value)
    assert "give a stream that begins anew a target of its own" in str(told.value)


def test_a_stream_with_such_a_sink_does_not_begin_anew_for_the_sake_of_another() -> None:
    found = evidence(journal(0), memory(2), committed=0)
    both = Evidence(
        lineage=QUERY,
        before=found.before,
        memories={**found.memories, "totals": TOTALS},
        committed=0,
        after=found.after,
    )

    assert check_start(found, NEW).reincarnate
    with pytest.raises(Rewound, match="Sink 'totals' takes one stream only"):
        check_start(both, NEW)


def test_an_earlier_incarnation_is_another_stream_to_it() -> None:
    again = Evidence(
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
    found = Evidence(
        lineage=QUERY,
        before=EMPTY,
        memories={"lake": shared, "totals": Memory("shop.totals", exclusive=True)},
        committed=-1,
        after=EMPTY,
    )

    assert not check_start(found, NEW).reincarnate
