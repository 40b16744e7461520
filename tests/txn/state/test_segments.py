"""Segments: what is written is read, in any layout; damage is noticed; any split and merge gives the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json
from epochal.txn.state import shards as sharding
from epochal.txn.state.merging import merged_blocks
from epochal.txn.state.segments import Segment, SegmentRef, SegmentWriter
from epochal.txn.state.shards import GROUPS, Entries, group_of, merge, partition, select, shard_of, shards_for
from epochal.txn.state.store import SegmentFiles, number_of_segment, segment_name
from tests.txn.memory import MemoryFiles

SHARDS = [1, 2, 8, GROUPS]
keys = st.text(st.sampled_from("abcdefgh/= ü\ud800\n"), max_size=3)
values = st.integers() | st.lists(st.none() | st.text(max_size=2), max_size=2) | st.dictionaries(keys, st.floats(0, 1))
changes = st.dictionaries(keys, st.none() | values, max_size=6)
epochs = st.lists(st.dictionaries(st.sampled_from(["left", "right"]), changes), min_size=1, max_size=10)

States = Mapping[str, Mapping[str, Json]]


def folded(steps: Sequence[States]) -> dict[str, dict[str, Json]]:
    """The state after some epochs, as plain dicts say it."""
    states: dict[str, dict[str, Json]] = {}
    for step in steps:
        for sink, change in step.items():
            after = {**states.get(sink, {}), **change}
            states[sink] = {key: value for key, value in after.items() if value is not None}
    return {sink: state for sink, state in states.items() if state}


def without_empty(states: States) -> States:
    return {sink: state for sink, state in states.items() if state}


def entries_of(steps: Sequence[States]) -> dict[str, Entries]:
    made: dict[str, Entries] = {}
    for step in steps:
        for sink, change in step.items():
            made.setdefault(sink, Entries()).fold(change, at=7.5)
    return made


def written(store: SegmentFiles, steps: Sequence[States], shards: int, place: int) -> SegmentRef:
    blocks = [
        (sink, shard, part)
        for sink, entries in entries_of(steps).items()
        for shard, part in enumerate(partition(entries, shards))
    ]
    return store.write_blocks(blocks, shards, number=1, place=place, through=0, clean=False)


@settings(deadline=None)
@given(epochs, st.lists(st.integers(0, 10), max_size=4), st.data())
def test_any_split_into_segments_and_shards_and_any_merge_gives_the_same_state(
    steps: list[States], cuts: list[int], data: st.DataObject
) -> None:
    store = SegmentFiles(MemoryFiles(), "journal")
    bounds = [0, *sorted(min(cut, len(steps)) for cut in cuts), len(steps)]
    runs = [steps[a:b] for a, b in pairwise(bounds)]
    refs = [written(store, run, data.draw(st.sampled_from(SHARDS)), place) for place, run in enumerate(runs)]
    for place in range(data.draw(st.integers(0, 2))):
        count, shards = data.draw(st.integers(1, len(refs))), data.draw(st.sampled_from(SHARDS))
        start = data.draw(st.integers(0, len(refs) - count))
        oldest = None if start else 0.0 if data.draw(st.booleans()) else 8.0
        blocks = merged_blocks(
            store.open(refs[start : start + count]), shards, now=20.0, drop_before=oldest, between=lambda: None
        )
        merged = store.write_blocks(blocks, shards, number=2, place=place, through=0, clean=not start)
        refs[start : start + count] = [merged]

    expected = folded(steps)
    assert without_empty(store.restore(refs)) == expected
    for shards in SHARDS[:3]:
        parts = [store.restore(refs, shard, shards) for shard in range(shards)]
        for number, part in enumerate(parts):
            assert all(shard_of(key, shards) == number for state in part.values() for key in state)
        together: dict[str, dict[str, Json]] = {}
        for part in parts:
            for sink, state in part.items():
                assert not together.get(sink, {}).keys() & state.keys()
                together.setdefault(sink, {}).update(state)
        assert without_empty(together) == expected


@given(st.dictionaries(keys, values), st.lists(keys), st.sampled_from(SHARDS))
def test_partition_and_merge_are_inverse(puts: dict[str, Json], gone: list[str], shards: int) -> None:
    entries = Entries(dict(puts))
    entries.fold(dict.fromkeys(gone), 1.0)
    parts = partition(entries, shards)

    assert merge(parts) == entries
    assert all(part == select(entries, shard, shards) for shard, part in enumerate(parts))


@given(st.lists(changes, max_size=6), st.integers(0, 6))
def test_entries_hold_each_key_once(steps: list[dict[str, Json]], cut: int) -> None:
    older, newer = Entries(), Entries()
    for number, step in enumerate(steps):
        (older if number < cut else newer).fold(step, float(number))
    older.add(newer)
    whole = Entries()
    for number, step in enumerate(steps):
        whole.fold(step, float(number))

    assert older == whole
    assert not older.puts.keys() & older.deleted.keys()


def test_the_group_of_a_key_never_changes() -> None:
    assert [group_of(key) for key in ("", "a", "day=2026-11-16/", "ü")] == [0, 579, 1023, 469]


def test_tombstones_are_dropped_at_the_bottom_once_they_are_old() -> None:
    store = SegmentFiles(MemoryFiles(), "journal")
    refs = [
        store.write({"s": Entries({"a": 1, "b": 1})}, number=1, place=0, through=0, clean=True),
        store.write({"s": Entries({}, {"a": 10.0, "b": 20.0})}, number=1, place=1, through=1, clean=False),
    ]
    blocks = list(merged_blocks(store.open(refs), 1, now=20.0, drop_before=15.0, between=lambda: None))
    above = list(merged_blocks(store.open(refs), 1, now=20.0, drop_before=None, between=lambda: None))

    assert blocks == [("s", 0, Entries({}, {"b": 20.0}))]
    assert above == [("s", 0, Entries({}, {"a": 10.0, "b": 20.0}))]


def example() -> tuple[bytes, SegmentRef]:
    writer = SegmentWriter(2)
    for shard, part in enumerate(partition(Entries({str(n): [n] for n in range(40)}, {"x": 1.0}), 2)):
        writer.add("sink", shard, part)
    data, check = writer.finish()
    return data, SegmentRef("m000000000001-00-x.seg", check, len(data), writer.puts, writer.deleted, 0, True)


def test_every_changed_or_missing_byte_is_noticed() -> None:
    data, ref = example()
    for place in range(len(data)):
        for broken in (data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], data[:place]):
            with pytest.raises(JournalCorrupt, match=r"journal/m.*restore it from a copy"):
                list(Segment("journal/m", broken, ref).read(0, 1))


def test_a_segment_that_the_journal_does_not_list_is_refused() -> None:
    data, ref = example()

    with pytest.raises(JournalCorrupt, match="not the segment that the journal lists"):
        Segment("journal/m", data, replace(ref, check="0" * 64))


def test_a_segment_says_how_much_is_in_it() -> None:
    _, ref = example()

    assert (ref.puts, ref.deleted, ref.entries) == (40, 1, 41)
    assert SegmentRef.from_json(ref.to_json()) == ref


@pytest.mark.parametrize(
    "change",
    [{"name": "../x"}, {"bytes": "1"}, {"clean": 1}, {"more": 1}],
    ids=str,
)
def test_a_listed_segment_with_other_fields_is_refused(change: dict[str, Json]) -> None:
    _, ref = example()

    with pytest.raises((TypeError, ValueError)):
        SegmentRef.from_json({**ref.to_json(), **change})


def test_names_of_segments_are_told_from_others() -> None:
    name = segment_name(17, 3, "0123456789abcdef" * 4)

    assert name == "m000000000017-03-0123456789abcdef.seg"
    assert number_of_segment(name) == 17
    others = ("m000000000017.json", "m17.seg", "s000000000017-03.seg", "mx-03-0.seg", ".epochal-tmp-m1-0-0.seg-a")
    assert [number_of_segment(other) for other in others] == [None] * len(others)


def test_large_states_have_blocks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "ENTRIES", 100)
    store = SegmentFiles(MemoryFiles(), "journal")
    ref = store.write(
        {"sink": Entries({f"key {n}": n for n in range(10_000)})}, number=1, place=0, through=0, clean=True
    )
    (segment,) = store.open([ref])

    assert segment.shards == shards_for(10_000) == 128
    assert max(block.puts for block in segment.blocks) < 200
    assert max(len(segment.raw(block)) for block in segment.blocks) < 5_000
    assert store.restore([ref]) == {"sink": {f"key {n}": n for n in range(10_000)}}
