"""Versions of a state: each is what a copy would be, and none costs a copy."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.model import Json
from epochal.txn.state.versions import SinkState

keys = st.sampled_from("abcdef")
changes = st.dictionaries(keys, st.none() | st.integers(0, 3), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 30), changes), max_size=12))
def test_every_version_stays_what_it_was(steps: list[tuple[int, dict[str, Json]]]) -> None:
    made: list[tuple[SinkState, dict[str, Json]]] = [(SinkState({"a": 1}), {"a": 1})]
    for number, (parent, change) in enumerate(steps):
        state, copy = made[parent % len(made)]  # mostly not the newest: a branch
        after: dict[str, Json] = {key: value for key, value in {**copy, **change}.items() if value is not None}
        made.append((state.then((number,), change), after))

    for state, copy in made:
        assert state == copy
        assert dict(state) == copy
        assert len(state) == len(copy)
        assert [state.get(key) for key in "abcdef"] == [copy.get(key) for key in "abcdef"]
        assert [key in state for key in "abcdef"] == [key in copy for key in "abcdef"]
    for state, copy in made:
        for other, others in made:
            changed = state.changed_since(other)
            assert changed is not None
            assert {key for key in "abcdef" if copy.get(key) != others.get(key)} <= changed


def test_the_same_step_gives_the_same_version() -> None:
    first = SinkState()
    step: dict[str, Json] = {"a": 1}

    assert first.then((1, 0), step) is first.then((1, 0), {"a": 1})
    assert first.then((1, 0), {"a": 2}) is not first.then((1, 0), step)
    assert first.then((2, 0), step) is not first.then((1, 0), step)
    assert first.then((3, 0), {}) is first


def test_versions_of_other_origins_are_not_compared() -> None:
    assert SinkState({"a": 1}).changed_since(SinkState({"a": 1})) is None
    assert SinkState().changed_since({}) is None


def test_a_long_line_of_versions_holds_one_dict_and_forgets_the_old_ones() -> None:
    state = SinkState({str(number): number for number in range(1000)})
    first = weakref.ref(state)
    root = state._root
    for number in range(100):
        state = state.then((number,), {"x": number})
    gc.collect()

    assert first() is None
    assert state._root is root
    assert state.changed_since(state) == set()
