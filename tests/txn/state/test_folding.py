"""Changes become segments and segments are merged: at any crash, beside any other process, the state stays the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.txn.errors import JournalCorrupt
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.records import Snapshot, encode
from epochal.txn.state.folding import Folding
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.state.policy import Knobs, segments_to_merge
from epochal.txn.state.segments import SegmentRef
from epochal.txn.state.store import number_of_segment
from epochal.txn.view import View
from tests.txn.memory import Crash, MemoryFiles
from tests.txn.state.scribe import Scribe, WatchedFiles, fold, states

Changes = dict[str, dict[str, Json]]


def step(number: int) -> Changes:
    """Opens a key, changes a hot one and closes one of three epochs before; every fourth time in another sink too."""
    changes: dict[str, Json] = {f"key {number}": {"at": number}, "hot": number}
    if number >= 3:
        changes[f"key {number - 3}"] = None
    return {"left": changes, **({"right": {str(number): [number]}} if number % 4 == 0 else {})}


def aged(files: MemoryFiles, epochs: int = 12) -> Scribe:
    """A stream that was folded several times, with rolls in between."""
    scribe = Scribe(files)
    scribe.begin()
    for number in range(epochs):
        scribe.run(step(number))
        if number % 5 == 3:
            scribe.roll({"left": {f"rolled {number}": 1, f"key {number}": None}})
        if number % 3 == 2:
            fold(files, view_of(files))
    return scribe


def view_of(files: MemoryFiles) -> View:
    return Journal(files, "journal").read()


def existing(expected: Changes) -> Changes:
    return {sink: state for sink, state in expected.items() if state}


def segments(files: MemoryFiles) -> list[str]:
    return [name for name in files.names("journal") if number_of_segment(name) is not None]


def test_folding_keeps_the_state_and_leaves_no_garbage() -> None:
    files = MemoryFiles()
    scribe = aged(files, 40)
    view = view_of(files)

    assert states(files) == existing(scribe.state)
    assert view.floor == 37
    assert view.state_record is not None
    assert segments(files) == sorted(ref.name for ref in view.state_record.segments)
    assert len([name for name in files.names("journal") if name.startswith("m") and name.endswith(".json")]) == 1
    assert sum(ref.entries for ref in view.state_record.segments) < 40  # 22 keys are live, 98 were changed


def test_a_running_process_never_reads_a_segment() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    journal = scribe.begin()
    reads: list[str] = []
    read = files.read

    def noted(path: str) -> bytes:
        reads.append(path)
        return read(path)

    files.read = noted  # type: ignore[method-assign]
    for number in range(30):
        scribe.run(step(number))
        view = journal.read()
        if number % 3 == 2:
            journal.compact(view, retain=1, slack=0)
            reads.clear()
            journal.read()
            assert not [path for path in reads if path.endswith(".seg")]

    assert {sink: dict(state) for sink, state in journal.read().sink_states().items()} == existing(scribe.state)


def test_a_driver_that_folds_reads_each_record_once_and_what_it_has_read_before_not_at_all() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    journal = scribe.begin()
    scribe.run(*(step(number) for number in range(9)))
    plan = journal.plan(journal.read(), retain=2, slack=0)
    reads: list[str] = []
    read = files.read

    def noted(path: str) -> bytes:
        reads.append(path.rpartition("/")[2])
        return read(path)

    files.read = noted  # type: ignore[method-assign]
    assert plan is not None
    journal.fold(plan)

    assert sorted(name for name in reads if name.startswith("e")) == [f"e{n:012d}.g000001.json" for n in range(7)]


def test_a_process_that_slept_reads_the_state_anew() -> None:
    files = MemoryFiles()
    scribe = aged(files, 6)
    sleeper = scribe.journal()
    sleeper.read()
    for number in range(6, 30):
        scribe.run(step(number))
        fold(files, view_of(files))

    assert {sink: dict(state) for sink, state in sleeper.read().sink_states().items()} == existing(scribe.state)


def crashes(files: MemoryFiles, work: Callable[[WatchedFiles], None]) -> list[dict[str, bytes]]:
    """What is on disk if the work dies before each of its changes of the disk."""
    found: list[dict[str, bytes]] = []
    done = False
    while not done:
        left = len(found)

        def before(path: str) -> None:
            nonlocal left
            if not left:
                raise Crash(path)
            left -= 1

        watched = WatchedFiles(dict(files.content), before)
        try:
            work(watched)
            done = True
        except Crash:
            pass
        found.append(watched.content)
    return found


@pytest.mark.parametrize("epochs", range(3, 16))
def test_any_crash_while_folding_leaves_the_state_of_a_whole_epoch(epochs: int) -> None:
    files = MemoryFiles()
    scribe = aged(files, epochs)
    scribe.run(step(epochs), step(epochs + 1))
    scribe.run(step(epochs + 2), done=False)
    left = crashes(files, lambda watched: fold(watched, view_of(watched)))

    assert len(left) > 8
    for content in left:
        again = MemoryFiles()
        again.content = dict(content)
        assert states(again) == existing(scribe.state)
        fold(again, view_of(again))
        assert states(again) == existing(scribe.state)
        further = Scribe(again, epoch=scribe.epoch, rolls=scribe.rolls, state={**scribe.state})
        further.journal().finish(scribe.epoch, 1)
        further.run(step(epochs + 3), step(epochs + 4))
        fold(again, view_of(again))
        record = view_of(again).state_record

        assert states(again) == existing(further.state)
        assert record is not None
        assert segments(again) == sorted(ref.name for ref in record.segments)  # what the crash left is gone


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("epochs", [4, 5, 8])
def test_a_process_that_stalls_anywhere_while_others_fold_does_no_harm(epochs: int, rounds: int) -> None:
    stalled = 0
    for place in range(100):
        files = MemoryFiles()
        scribe = aged(files, epochs)
        scribe.run(step(epochs), step(epochs + 1))
        left, met = place, False

        def others(path: str, files: MemoryFiles = files, scribe: Scribe = scribe) -> None:
            nonlocal left, met
            if left == 0 and not met:
                met = True
                for number in range(rounds):
                    scribe.run(step(epochs + 2 + number))
                    fold(files, view_of(files))
            left -= 1

        watched = WatchedFiles(files.content, others)
        fold(watched, view_of(files))

        assert states(files) == existing(scribe.state)
        stalled += met
        fold(files, view_of(files))
        scribe.run(step(90))
        fold(files, view_of(files))
        record = view_of(files).state_record
        assert states(files) == existing(scribe.state)
        assert record is not None
        assert segments(files) == sorted(ref.name for ref in record.segments)
        if not met:
            break
    assert stalled > 5


def test_a_process_that_removes_what_is_old_leaves_what_another_is_writing() -> None:
    for place in range(8):
        files = MemoryFiles()
        scribe = aged(files, 6)
        slow = FoldingPlan.of(view_of(files), retain=1)  # of a process that stalled before it removed anything
        scribe.run(step(6), step(7))
        left = place

        def purge(path: str, files: MemoryFiles = files, slow: FoldingPlan = slow) -> None:
            nonlocal left
            if left == 0:
                Folding(files, "journal", str).purge(slow, Journal(files, "journal", with_states=False).read)
            left -= 1

        fold(WatchedFiles(files.content, purge), view_of(files))

        assert left < 0
        assert states(files) == existing(scribe.state)


def test_a_state_record_of_a_driver_that_stalled_lets_no_record_go() -> None:
    """The number is free again after others have passed it, and its segments are gone: only a listing shows that."""
    files = MemoryFiles()
    scribe = aged(files, 3)
    scribe.run(*(step(number) for number in range(3, 8)))
    stale = view_of(files)
    assert stale.state_record is not None
    met = False

    def others(path: str) -> None:
        nonlocal met
        if path.endswith(f"m{number + 1:012d}.json") and not met:
            met = True
            for retain in (5, 4, 3):  # each passes a number, and none covers what the stalled one wants to
                fold(files, view_of(files), retain=retain)

    number = stale.state_record.number
    fold(WatchedFiles(files.content, others), stale, retain=1)

    assert met
    assert view_of(files).floor == 4
    assert states(files) == existing(scribe.state)


def test_rolls_after_the_last_decided_epoch_are_not_cut_off() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    scribe.run(step(0), step(1), step(2))
    fold(files, view_of(files), retain=0)
    scribe.roll({"left": {"rolled": 1, "key 2": None}})

    assert view_of(files).floor == 1
    assert states(files) == existing(scribe.state)


def test_a_stream_without_state_gets_no_state_record() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    nothing: Changes = {"left": {}}
    scribe.run(nothing, nothing, nothing, nothing)
    fold(files, view_of(files))

    assert view_of(files).floor == 2
    assert [name for name in files.names("journal") if name.startswith("m")] == []


def test_the_state_of_a_snapshot_of_an_older_version_is_carried_over() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    scribe.run(step(0), step(1), step(2))
    kept = {sink: {**state} for sink, state in scribe.state.items()}  # as of epoch 2, which is newer than the snapshot
    files.create("journal/s000000000001.json", encode(Snapshot(1, kept=kept)))
    for name in files.names("journal"):
        if name.startswith(("e000000000000", "e000000000001")):
            files.delete(f"journal/{name}")
    before = states(files)
    scribe.run(step(3), step(4), step(5))
    left = crashes(files, lambda watched: fold(watched, view_of(watched)))

    assert before == existing(kept)
    for content in left:
        again = MemoryFiles()
        again.content = dict(content)
        assert states(again) == existing(scribe.state)
        Scribe(again, epoch=scribe.epoch).run(step(6))
        fold(again, view_of(again))
        scribe_after = {**scribe.state["left"], "key 6": {"at": 6}, "hot": 6}
        del scribe_after["key 3"]
        assert states(again)["left"] == scribe_after
        assert Snapshot(1).name not in again.names("journal")


def test_a_lost_segment_or_state_record_is_an_error_that_names_it() -> None:
    files = MemoryFiles()
    aged(files)
    lost = [name for name in files.names("journal") if name.startswith("m")]
    assert len(lost) > 1
    for name in lost:
        content = {path: data for path, data in files.content.items() if path != f"journal/{name}"}
        broken = MemoryFiles()
        broken.content = content
        with pytest.raises(JournalCorrupt, match=name):
            Journal(broken, "journal").read()


def test_sinks_with_the_same_keys_are_apart_and_a_renamed_sink_leaves_its_state_under_the_old_name() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    for number in range(24):
        first = "left" if number < 12 else "renamed"
        deleted: dict[str, Json] = {"hot": None, f"key {number - 1}": None}
        scribe.run({first: {"hot": number, f"key {number}": number}, "right": deleted if number % 2 else {"hot": -1}})
        if number % 3 == 2:
            fold(files, view_of(files))

    assert states(files) == existing(scribe.state)
    assert states(files)["left"]["hot"] == 11
    assert states(files)["renamed"]["hot"] == 23


def test_a_view_without_states_cannot_be_asked_for_them() -> None:
    files = MemoryFiles()
    aged(files)
    view = Journal(files, "journal", with_states=False).read()

    assert view.floor > 0
    with pytest.raises(RuntimeError, match="made without it"):
        view.sink_state("left")


def refs(*entries: int, clean: int = 1) -> list[SegmentRef]:
    return [SegmentRef(str(n), "", 0, size, 0, 0, n < clean) for n, size in enumerate(entries)]


@pytest.mark.parametrize(
    ("listed", "ratio", "count"),
    [
        (refs(1000), 0.01, 0),
        (refs(1000, 5), 0.5, 0),
        (refs(1000, 1000), 0.5, 2),
        (refs(1000, 11), 0.01, 2),
        (refs(1000, 10, 10, 10), 0.5, 0),
        (refs(1000, 10, 10, 10, 10), 0.5, 4),
        (refs(1000, 100, 10, 10, 10), 0.5, 0),
        (refs(1000, 70, 10, 10, 10), 0.5, 0),
        (refs(1000, 60, 10, 10, 10), 0.5, 4),
    ],
)
def test_all_segments_are_merged_once_enough_is_dirty_and_else_those_of_one_size(
    listed: list[SegmentRef], ratio: float, count: int
) -> None:
    assert segments_to_merge(listed, Knobs(dirty_ratio=ratio)) == count


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=40),
    st.sampled_from([0.01, 0.3, 0.66, 1.0]),
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8),
)
def test_any_history_of_epochs_rolls_and_folds_gives_the_state_of_plain_dicts(
    history: list[int], ratio: float, names: list[str]
) -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    for number, kind in enumerate(history):
        name = names[number % len(names)]
        match kind:
            case 0 | 1:
                scribe.run({"left": {name: number if kind else None, f"{name}{number}": 1}})
            case 2 if scribe.epoch >= 0:
                scribe.roll({"left": {name: None}})
            case _:
                fold(files, view_of(files), retain=number % 3, knobs=Knobs(dirty_ratio=ratio))
        assert states(files) == existing(scribe.state)
