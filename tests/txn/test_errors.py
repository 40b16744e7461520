"""Several refusals in one error."""

from __future__ import annotations

from epochal.txn.errors import BadRows, ForeignTarget, Refused, Rewound, all_in_one


def test_refusals_of_refusals_are_told_once_and_side_by_side() -> None:
    table, other, rewound = Refused("a: no table"), Refused("b: no table"), Rewound("c: rewound")
    rewound.offers = (("adopt", "1@4"),)
    of_checkpoint = all_in_one([Refused("a: no table"), Refused("b: no table"), rewound])
    one = all_in_one([table, other, all_in_one([of_checkpoint, BadRows("d: too long")])])

    assert str(one).splitlines() == [
        "refused for 4 reasons:",
        "  - a: no table",
        "  - b: no table",
        "  - c: rewound",
        "  - d: too long",
    ]
    assert type(one) is Refused
    assert one.offers == (("adopt", "1@4"),)


def test_what_is_left_of_refusals_that_are_the_same_is_raised_as_it_is() -> None:
    fault = ForeignTarget("a: another stream")

    assert all_in_one([fault, all_in_one([ForeignTarget("a: another stream")])]).parts == ()
    assert str(all_in_one([fault, fault])) == "a: another stream"
