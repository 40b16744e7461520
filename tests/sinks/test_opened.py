"""The index of open parts follows the state; an epoch that looks at few parts closes what looking at all would."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.sinks.files.opened import Opened
from epochal.sinks.files.policies import rolling
from epochal.sinks.files.policies.rolling import Piece, Rolling, RollPlan, roll_plan
from epochal.sinks.files.state import open_parts_of
from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json
from epochal.txn.state.typed import Edit
from epochal.txn.state.versions import SinkState

HEADERS = {"csv a": b"x\n", "csv b": b"y\n"}
POLICIES = [
    Rolling(max_rows=5),
    Rolling(max_bytes=25),
    Rolling(max_age=4),
    Rolling(inactivity=2),
    Rolling(max_rows=4, max_age=9, inactivity=3),
]
epochs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["day=1/", "day=2/", "day=3/"]), st.integers(1, 3)), max_size=4),
        st.sampled_from(["csv a", "csv a", "csv a", "csv b"]),
        st.sampled_from([(), (), ("day=1/",)]),
        st.booleans(),
    ),
    max_size=12,
)


def orders(parts: Iterable[Iterable[Piece]]) -> list[list[tuple[str, int, str]]]:
    return sorted(sorted(piece.order for piece in part) for part in parts)


@dataclass
class World:
    """A state, the index that follows it, and all pieces as a plain set."""

    policy: Rolling
    state: SinkState = field(default_factory=SinkState)
    opened: Opened = field(default_factory=Opened)
    pieces: set[Piece] = field(default_factory=set)
    clock: float = 0.0
    epoch: int = -1

    def step(self, rows: list[tuple[str, int]], shape: str | None, complete: tuple[str, ...]) -> None:
        """An epoch, or with no shape a roll."""
        self.clock += 1
        self.epoch += shape is not None
        fresh = [
            Piece(self.epoch, bucket, f"{bucket}part-{number}", 10, count, self.clock, shape or "")
            for number, (bucket, count) in enumerate(rows if shape else [])
        ]
        opened = self.opened.follow(self.state)
        looked_at = opened.candidates(self.policy, self.clock, fresh=fresh, complete=complete, shape=shape)
        plan = roll_plan([*looked_at, *fresh], self.policy, self.clock, shape=shape, complete=complete)
        whole = roll_plan([*self.pieces, *fresh], self.policy, self.clock, shape=shape, complete=complete)
        self.check_plan(plan, whole)
        edit = Edit(self.state)
        opened.change(edit, "/t", looked_at=looked_at, left=plan.open, headers=HEADERS, awaited={}, over=())
        self.state = self.state.then((self.epoch, 0 if shape else 1, int(self.clock)), edit.changes)
        self.pieces = {*whole.open}
        self.check_state()

    def check_plan(self, plan: RollPlan, whole: RollPlan) -> None:
        assert orders(plan.closed) == orders(whole.closed)
        closed = {piece for part in whole.closed for piece in part}
        still = {piece.epoch for piece in self.pieces - closed}
        assert self.opened.epochs_without(closed & self.pieces) == {p.epoch for p in closed & self.pieces} - still

    def check_state(self) -> None:
        opened, found = self.opened.follow(self.state), open_parts_of(self.state)
        assert {*found.pieces} == self.pieces
        assert found.headers == {shape: HEADERS[shape] for shape in {piece.shape for piece in self.pieces}}
        assert found.target == ("/t" if self.pieces else None)
        parts = rolling.open_parts(self.pieces)
        assert opened.size() == (len(parts), sum(piece.bytes for piece in self.pieces))
        assert orders(opened.parts()) == orders(parts)
        assert opened.due(self.policy) == rolling.due(parts, self.policy)
        assert (opened.pieces, {*opened.shapes()}) == (len(self.pieces), {p.shape for p in self.pieces})


@settings(deadline=None)
@given(st.sampled_from(POLICIES), epochs)
def test_an_epoch_that_looks_at_some_parts_closes_what_one_that_looks_at_all_closes(
    policy: Rolling, steps: list[tuple[list[tuple[str, int]], str, tuple[str, ...], bool]]
) -> None:
    world = World(policy)
    for rows, shape, complete, rolls in steps:
        world.step(rows, shape, complete)
        if rolls:
            world.step([], None, ())


def entry(epoch: int, bucket: str, *, prefix: str = "") -> tuple[str, Json]:
    return f"{prefix}{epoch:012d} {bucket}", {"at": 1.0, "shape": "csv a", "files": [[f"{bucket}p", 10, 1]]}


def test_parts_that_an_older_version_opened_grow_and_close() -> None:
    legacy, new = entry(0, "day=1/"), entry(1, "day=1/", prefix="piece ")
    state = SinkState(dict([("target", "/t"), ("header csv a", "eAo="), legacy, new]))
    opened = Opened().follow(state)
    (part,) = opened.parts()
    edit = Edit(state)
    opened.change(edit, "/t", looked_at=part, left=part[1:], headers=opened.headers, awaited={}, over=())

    assert [piece.epoch for piece in part] == [0, 1]
    assert edit.changes == {legacy[0]: None}


def test_a_part_that_is_over_a_limit_since_a_start_is_closed_by_the_next_epoch() -> None:
    state = SinkState(dict([entry(0, "day=1/"), entry(1, "day=1/"), ("target", "/t")]))
    opened = Opened().follow(state)
    policy = Rolling(max_rows=2)

    assert len(opened.candidates(policy, 1.0)) == 2
    opened.follow(state.then((2, 0), dict([entry(2, "day=2/")])))
    assert opened.candidates(policy, 1.0) == []


def test_an_entry_that_cannot_be_read_leaves_no_half_index() -> None:
    state = SinkState(dict([entry(0, "day=1/")]))
    opened = Opened().follow(state)
    broken = state.then((1, 0), {"piece 000000000001 day=2/": {"files": 1}})

    for _ in range(2):
        with pytest.raises(JournalCorrupt, match="open parts cannot be read"):
            opened.follow(broken)
    with pytest.raises(JournalCorrupt, match="open parts cannot be read"):
        opened.follow(state.then((1, 1), {"piece 000000000001 day=2/": {"at": 1.0, "shape": "csv a", "files": []}}))
    assert opened.follow(broken.then((2, 0), {"piece 000000000001 day=2/": None})).size() == (1, 10)


def test_buckets_that_await_their_marker_are_found_by_their_end() -> None:
    state = SinkState({f"awaited day={number}/": float(number) for number in range(10)})
    opened = Opened().follow(state)

    assert opened.awaited_until(2.0) == {"day=0/": 0.0, "day=1/": 1.0, "day=2/": 2.0}
    assert opened.awaited_until(2.0) == {"day=0/": 0.0, "day=1/": 1.0, "day=2/": 2.0}
    opened.follow(state.then((1, 0), {"awaited day=0/": None, "awaited day=1/": 5.0}))
    assert (opened.first_end(), opened.awaited_until(2.0)) == (2.0, {"day=2/": 2.0})


def test_a_part_that_grows_is_looked_at_when_it_is_full() -> None:
    state = SinkState({"target": "/t", **dict(entry(number, "day=1/", prefix="piece ") for number in range(1000))})
    opened = Opened().follow(state)
    fresh = Piece(1000, "day=1/", "day=1/p", 10, 1, 1.0, "csv a")

    assert opened.candidates(Rolling(max_rows=1002), 1.0, fresh=[fresh]) == []
    assert len(opened.candidates(Rolling(max_rows=1001), 1.0, fresh=[fresh])) == 1000
    assert len(opened.candidates(Rolling(max_bytes=10_010), 1.0, fresh=[fresh])) == 1000


def test_parts_that_are_due_are_found_whenever_their_limit_is_first_asked_for() -> None:
    state = SinkState({f"piece {n:012d} b={n}/": {"at": n, "shape": "csv a", "files": [["p", 1, 1]]} for n in range(9)})
    opened = Opened().follow(state)
    state = state.then((9, 0), {"piece 000000000000 b=0/": None})
    opened.follow(state)

    assert [piece.epoch for piece in opened.candidates(Rolling(max_age=5), 6.0)] == [1]
    opened.follow(state.then((10, 0), {"piece 000000000001 b=1/": None, "piece 000000000010 b=2/": None}))
    assert opened.due(Rolling(max_age=5)) == 7.0
    assert opened.due(Rolling(inactivity=4)) == 6.0
