"""What follows from a table's ledger: the next timestamp, and what the guard sees. No server."""

from __future__ import annotations

import pytest

from epochal.sinks.cassandra.ledger_state import LedgerState, StreamState
from epochal.txn.model import NO_EPOCH, Memory

NOW = 1_000_000


def register(*streams: StreamState, owner: str | None = None, now: int = NOW) -> LedgerState:
    return LedgerState({s.lineage: s for s in streams}, owner, now)


@pytest.mark.parametrize(
    ("taken", "stamp"),
    [
        ((), NOW),  # in touch with the server's clock
        ((NOW - 500,), NOW),
        ((NOW,), NOW + 2),  # a clock that stands
        ((NOW + 500, 7), NOW + 502),  # another lineage's that was ahead
        ((NOW + 501,), NOW + 504),  # one that is odd has written at the even one after it
    ],
)
def test_a_timestamp_is_even_and_later_than_any_that_was_taken(taken: tuple[int, ...], stamp: int) -> None:
    found = register(*(StreamState(f"l{n}", stamp=each) for n, each in enumerate(taken)))

    assert found.next_stamp() == stamp
    assert found.next_stamp(least=stamp) == stamp + 2


def test_who_took_a_place_stands_for_all_before_it() -> None:
    found = register(StreamState("a", epoch=3), StreamState("b", ("a",), epoch=1), StreamState("c", ("b",)))

    assert found.chain("c") == ["c", "b", "a"]
    assert found.adopted_by("a") == "b"
    assert found.memory("d", "t", adds=False).others == {"c": NO_EPOCH}


def memory(found: LedgerState, lineage: str, *, adds: bool = True) -> Memory:
    return found.memory(lineage, "t", adds=adds)


def test_totals_are_one_streams_alone() -> None:
    found = register(StreamState("a", epoch=3), owner="a")

    assert memory(found, "a") == Memory("t", enrolled=True, last=3, exclusive=True)
    assert memory(found, "b") == Memory("t", others={"a": 3}, exclusive=True)
    assert memory(found, "b", adds=False).exclusive  # rows that are deleted or expire would take totals along
    assert not memory(register(StreamState("a", epoch=3)), "b", adds=False).exclusive


def test_totals_that_an_older_epochal_wrote_are_claimed_by_their_streams_next_start() -> None:
    found = register(StreamState("a", epoch=3))

    assert not memory(found, "a").enrolled
    assert memory(found, "a").last == 3


def test_an_owner_that_was_never_enrolled_can_be_adopted() -> None:
    assert memory(register(owner="a"), "b").others == {"a": NO_EPOCH}


def test_who_took_the_owners_place_is_not_refused() -> None:
    found = register(StreamState("a", epoch=3), StreamState("b", ("a",)), owner="a")

    assert memory(found, "b", adds=False) == Memory("t", enrolled=True, others={"a": 3})
    assert memory(found, "b") == Memory("t", enrolled=False, exclusive=True)  # the totals are still to be claimed
