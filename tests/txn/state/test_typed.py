"""Typed state: value, list and map by name, and the flat changes that come of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.model import Attempt, Batch, Json, RollRequest, canonical
from epochal.txn.state.typed import Edit
from epochal.txn.state.versions import SinkState
from tests.txn.memory import MemoryFiles
from tests.txn.state.scribe import Scribe, fold, states


def applied(state: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


def test_a_batch_and_a_roll_open_the_state_by_name() -> None:
    attempt = Attempt("lineage", 1, 1)
    state: dict[str, Json] = {"target": "/archive"}

    assert Batch(attempt=attempt, rows=None, offsets="", state=state).edit().value("target").get() == "/archive"
    assert RollRequest(attempt=attempt, state=state, every=True).edit().value("target").get() == "/archive"


def test_reads_see_the_state_before_and_the_changes_so_far() -> None:
    edit = Edit({"open a": 1, "open b": 2, "closed c": 3})
    parts = edit.map("open")
    parts["d"] = {"nested": [1, None, {"x": "ü"}]}
    del parts["a"]

    assert sorted(parts) == ["b", "d"]
    assert (len(parts), "a" in parts, parts.get("a"), parts["d"]) == (2, False, None, {"nested": [1, None, {"x": "ü"}]})
    assert edit.changes == {"open a": None, "open d": {"nested": [1, None, {"x": "ü"}]}}


def test_what_is_set_to_what_it_was_is_no_change() -> None:
    edit = Edit({"target": "/a", "open a": [1]})
    edit.value("target").set("/b")
    edit.value("target").set("/a")
    edit.map("open")["a"] = [1]
    edit.map("open")["b"] = 1
    del edit.map("open")["b"]

    assert edit.changes == {}


def test_a_list_keeps_its_order_over_epochs() -> None:
    state: dict[str, Json] = {}
    for epoch in range(12):
        edit = Edit(state)
        edit.list("marks").append(epoch)
        if epoch % 3 == 2:
            edit.list("marks").pop_first()
        state = applied(state, edit.changes)

    marks = Edit(state).list("marks")
    assert list(marks) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert (len(marks), marks[0], marks[-1]) == (8, 4, 11)
    with pytest.raises(IndexError, match="has 8 values"):
        marks[8]


def test_an_append_of_every_attempt_at_an_epoch_is_the_same_change() -> None:
    state: dict[str, Json] = {"marks": {"first": 2, "next": 5}, "marks #000000000004": "x"}
    edits = [Edit(state), Edit(dict(state))]
    for edit in edits:
        edit.list("marks").append("new")

    assert edits[0].changes == edits[1].changes
    twice = applied(applied(state, edits[0].changes), edits[1].changes)
    assert twice == applied(state, edits[0].changes)


def test_a_number_of_a_list_is_never_used_twice() -> None:
    edit = Edit({})
    marks = edit.list("marks")
    marks.append(1)
    marks.clear()
    marks.append(2)

    assert list(marks) == [2]
    assert {key: value for key, value in edit.changes.items() if value is not None} == {
        "marks": {"first": 1, "next": 2},
        "marks #000000000001": 2,
    }
    with pytest.raises(IndexError, match="is empty"):
        Edit({}).list("marks").pop_first()


def test_a_name_has_one_type() -> None:
    edit = Edit({"target": "/a"})
    edit.map("open")

    assert edit.map("open") is edit.map("open")
    with pytest.raises(TypeError, match="'open' was opened as a map and cannot be opened as a list"):
        edit.list("open")
    with pytest.raises(TypeError, match="'target' is no list: it holds a value"):
        edit.list("target").append(1)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a#", "ä", "a\n"])
def test_a_name_that_could_be_a_key_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name state"):
        Edit({}).map(name)


@pytest.mark.parametrize("value", [None, float("nan"), {1, 2}, object(), {"a": b"x"}])
def test_what_the_journal_cannot_hold_is_refused_when_it_is_set(value: Any) -> None:
    edit = Edit({})
    changes: list[Callable[[], None]] = [
        lambda: edit.value("v").set(value),
        lambda: edit.list("l").append(value),
        lambda: edit.map("m").__setitem__("k", value),
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"delete it instead|must be JSON"):
            change()

    assert edit.changes == {}


def nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (10**5000, "a number of 16,610 bits"),
        ({"a": [1, -(10**5000)]}, "a number of 16,610 bits"),
        (nested(101), "nested more than 100 levels deep"),
        ({"a": nested(100_000)}, "nested more than 100 levels deep"),
        (float("inf"), "must be JSON"),
    ],
    ids=["number", "number inside", "nested", "deeply nested", "infinity"],
)
def test_what_not_every_process_could_read_back_is_refused_when_it_is_set(value: Json, says: str) -> None:
    edit = Edit({})
    for change in (edit.value("v").set, edit.list("l").append, lambda value: edit.map("m").update({"k": value})):
        with pytest.raises(ValueError, match=says):
            change(value)

    assert edit.changes == {}


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Json] = []
    value.append(value)

    with pytest.raises(ValueError, match="nested more than 100 levels"):
        Edit({}).value("v").set(value)


@pytest.mark.parametrize("value", [10**3000, -(10**3000), nested(100), "\0", "x" * 1_000_000, -0.0, 5e-324])
def test_what_is_extreme_and_can_be_read_back_is_held(value: Json) -> None:
    edit = Edit({})
    edit.value("v").set(value)

    assert edit.changes == {"v": value}
    assert json.loads(canonical(value)) == value


def test_the_key_of_a_map_is_text() -> None:
    parts: Any = Edit({}).map("open")

    assert 1 not in parts
    with pytest.raises(TypeError, match="keys of text, not 1"):
        parts[1] = "a"


halves = st.characters(codec=None) | st.sampled_from(["\ud83d", "\ude00", "\udcff", "😀"])


@given(st.dictionaries(st.text(halves, max_size=4), st.text(halves, max_size=4) | st.integers(), max_size=4))
def test_any_text_is_the_same_in_memory_in_records_and_in_segments(entries: dict[str, Json]) -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    journal = scribe.begin()
    edit = Edit({})
    for key, value in entries.items():
        edit.map("open")[key] = value
    scribe.run({"left": edit.changes}, {"left": {}}, {"left": {}})
    in_memory = dict(journal.read().sink_state("left"))
    fold(files, journal.read())
    stored = states(files).get("left", {})

    assert in_memory == stored == edit.changes
    assert all(key in Edit(stored).map("open") for key in entries)
    assert journal.read().floor == 1


def test_a_value_that_is_changed_after_it_was_set_does_not_change_the_state() -> None:
    edit = Edit({})
    value: list[Json] = [1]
    edit.value("v").set(value)
    value.append(2)

    assert edit.changes == {"v": [1]}


names = st.sampled_from(["a", "b"])
keys = st.text(max_size=3)
values = st.recursive(st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))
operations = st.lists(
    st.tuples(st.just("put"), names, keys, values)
    | st.tuples(st.just("delete"), names, keys, values)
    | st.tuples(st.just("append"), names, keys, values)
    | st.tuples(st.just("pop"), names, keys, values),
    max_size=8,
)


@given(st.lists(operations, max_size=6), st.booleans())
def test_epochs_of_typed_changes_are_what_plain_dicts_and_lists_are(
    epochs: list[list[tuple[str, str, str, Json]]], versions: bool
) -> None:
    maps: dict[str, dict[str, Json]] = {"a": {}, "b": {}}
    lists: dict[str, list[Json]] = {"a": [], "b": []}
    state: Mapping[str, Json] = SinkState() if versions else {}
    for number, epoch in enumerate(epochs):
        edit = Edit(state)
        for operation, name, key, value in epoch:
            match operation:
                case "put":
                    edit.map(f"m{name}")[key] = value
                    maps[name][key] = value
                case "delete" if key in maps[name]:
                    del edit.map(f"m{name}")[key]
                    del maps[name][key]
                case "append":
                    edit.list(f"l{name}").append(value)
                    lists[name].append(value)
                case "pop" if lists[name]:
                    assert edit.list(f"l{name}").pop_first() == lists[name].pop(0)
        changes = json.loads(json.dumps(edit.changes))
        state = state.then((number, 0), changes) if isinstance(state, SinkState) else applied(state, changes)

    after = Edit(state)
    assert {name: dict(after.map(f"m{name}")) for name in maps} == maps
    assert {name: list(after.list(f"l{name}")) for name in lists} == lists


def test_a_value_that_was_read_changed_and_put_back_is_recorded() -> None:
    before: dict[str, Json] = {"open day=1/": {"files": [1], "n": 1}, "target": {"n": 1}}
    state = Edit(before)
    part, target = state.map("open")["day=1/"], state.value("target").get()
    assert isinstance(part, dict)
    assert isinstance(target, dict)
    part["n"], part["files"], target["n"] = 2, [1, 2], 2
    state.map("open")["day=1/"] = part
    state.value("target").set(target)

    assert before == {"open day=1/": {"files": [1], "n": 1}, "target": {"n": 1}}
    assert state.changes == {"open day=1/": {"files": [1, 2], "n": 2}, "target": {"n": 2}}


@pytest.mark.parametrize(("old", "new"), [(1, True), (0, False), (1.0, 1), ({"n": [1]}, {"n": [True]})])
def test_values_that_only_python_takes_for_equal_are_changes(old: Json, new: Json) -> None:
    state = Edit({"target": old})
    state.value("target").set(new)

    assert json.dumps(state.changes) == json.dumps({"target": new})
