"""The watermark: which epoch every sink shows, as the journal says it and as a file tells it."""

from __future__ import annotations

import json
import logging

import pytest

from epochal.txn import failpoints
from epochal.txn.codec import from_bytes
from epochal.txn.cut_file import CutFile, folder_beside, read
from epochal.txn.cuts import Watermark, watermark
from epochal.txn.errors import JournalCorrupt
from epochal.txn.settler import Settler
from tests.txn.stream import QUERY, TAG, Rows, Stream


def mark_of(stream: Stream, incarnation: int = 1) -> Watermark:
    found = watermark(stream.journal(incarnation).read())
    assert found is not None
    return found


def files_of(stream: Stream) -> list[str]:
    return list(stream.files.names(folder_beside(stream.journal().path)))


def test_there_is_no_watermark_before_the_first_epoch_is_done() -> None:
    stream = Stream()
    coordinator = stream.start()
    stream.plan(0)
    coordinator.run(0, [0])
    stream.commit(0)

    assert watermark(stream.journal().read()) is None


def test_the_watermark_is_the_last_epoch_that_every_sink_shows() -> None:
    stream = Stream()
    coordinator = stream.start(stream.sink("a"), stream.sink("b"))
    stream.run(coordinator, 0, 1, 2)
    stream.plan(3)
    coordinator.run(3, [3])
    stream.commit(3)  # decided, and no sink shows it yet

    mark = mark_of(stream)
    assert (mark.lineage, mark.epoch, sorted(mark.sinks), mark.absent) == (QUERY, 2, ["a", "b"], {})
    assert mark.sinks["a"].description.target == "a"
    assert mark.sinks["a"].notes == ()


def test_a_sink_that_joined_later_says_since_when() -> None:
    stream = Stream()
    stream.run(stream.start(stream.sink("a")), 0, 1)
    coordinator = stream.start(stream.sink("a"), stream.sink("b"))
    before = mark_of(stream)
    stream.run(coordinator, 2)

    assert before.absent == {"b": "no epoch that it was given is done yet: it joins the stream after epoch 1"}
    assert sorted(before.sinks) == ["a"]
    assert mark_of(stream).sinks["b"].notes == (
        "it is part of the stream since epoch 2 only: epochs 0 to 1 never went there",
    )
    assert mark_of(stream).sinks["a"].notes == ()


def test_a_sink_that_left_is_named_with_its_last_epoch() -> None:
    stream = Stream()
    stream.run(stream.start(stream.sink("a"), stream.sink("b")), 0, 1)
    stream.run(stream.start(stream.sink("a")), 2)

    assert mark_of(stream).absent == {"b": "it left the stream after epoch 1 and was not given epoch 2"}


def test_a_sink_that_was_moved_says_where_its_earlier_epochs_are() -> None:
    stream = Stream()
    stream.run(stream.start(stream.sink("a")), 0, 1)
    moved = stream.sink("b")
    moved._name = "a"
    stream.run(stream.start(moved), 2)

    at = mark_of(stream).sinks["a"]
    assert at.description.target == "b"
    assert at.notes == ("epochs 0 to 1 went to a",)
    assert list(at.starts) == [2]


def test_a_sink_that_held_an_epoch_before_its_checkpoint_was_restored_is_in_the_watermark() -> None:
    stream = Stream()
    sinks = stream.sink("a"), stream.sink("b")
    coordinator = stream.start(*sinks)
    stream.run(coordinator, 0, 1)
    copy = {path: data for path, data in stream.files.content.items() if path.startswith(stream.path)}
    stream.run(coordinator, 2, 3)
    stream.files.delete(stream.path)
    stream.files.content.update(copy)

    coordinator = stream.start(*sinks, adopt=f"{TAG}@3")
    stream.run(coordinator, 2)

    assert (mark_of(stream).epoch, sorted(mark_of(stream).sinks), mark_of(stream).absent) == (2, ["a", "b"], {})
    stream.run(coordinator, 3, 4)
    assert sinks[0].rows() == [0, 1, 2, 3, 4]
    assert mark_of(stream).sinks["a"].notes == (
        "2 epochs were not given to it again: its start was told that it held those up to 3",
    )


def test_notes_survive_the_compaction_of_the_journal() -> None:
    stream = Stream()
    coordinator = stream.coordinator(stream.sink("a"), retain=1)
    coordinator.begin()
    stream.run(coordinator, *range(25))
    coordinator = stream.coordinator(stream.sink("a"), stream.sink("b"), retain=1)
    coordinator.begin()
    stream.run(coordinator, *range(25, 50))

    assert any(name.startswith("s") for name in stream.files.names(stream.journal().path))
    assert mark_of(stream).epoch == 49
    assert mark_of(stream).sinks["b"].notes == (
        "it is part of the stream since epoch 25 only: epochs 0 to 24 never went there",
    )


def settled(stream: Stream, epochs: int, cut: CutFile | None = None) -> Settler[Rows]:
    """A driver that has run so many epochs, as its settler leaves them."""
    coordinator = stream.start()
    settler = Settler(coordinator)
    if cut is not None:
        settler._cut = cut
    for epoch in range(epochs):
        stream.plan(epoch)
        settler.run(epoch, [epoch])
        stream.commit(epoch)
        settler.settle(0)
    return settler


def test_the_file_follows_the_journal_and_only_the_newest_stays() -> None:
    stream = Stream()
    settled(stream, 3)

    assert files_of(stream) == ["000000000002.json"]
    path = f"{folder_beside(stream.journal().path)}/000000000002.json"
    assert from_bytes(path, stream.files.read(path), version=1) == {
        "format": 1,
        "kind": "cut",
        "lineage": QUERY,
        "epoch": 2,
        "at": "1970-01-01T00:00:00.000+00:00",
        "sinks": {"sink": {"type": "directory", "target": "sink"}},
    }
    assert read(stream.files, stream.journal().path) == json.loads(stream.files.read(path))["record"]


@pytest.mark.parametrize("point", ["before-cut", "after-cut"])
def test_a_driver_that_dies_between_done_and_the_file_leaves_it_to_the_next_start(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(name: str) -> None:
        if name == point:
            raise Died

    stream = Stream()
    settler = settled(stream, 1)
    stream.plan(1)
    settler.run(1, [1])
    stream.commit(1)
    monkeypatch.setattr(failpoints, "hit", die)
    with pytest.raises(Died):
        settler.settle(0)
    monkeypatch.undo()
    left = files_of(stream)
    Settler(stream.start()).settle(0)

    assert left[0] == "000000000000.json"
    assert mark_of(stream).epoch == 1
    assert files_of(stream) == ["000000000001.json"]


def test_a_file_ahead_of_a_restored_journal_is_removed_by_the_next_start() -> None:
    stream = Stream()
    settled(stream, 3)
    folder, journal = folder_beside(stream.journal().path), stream.journal().path
    stream.files.delete(f"{journal}/e000000000002.done.json")
    stream.rewind(keep=1)
    settler = Settler(stream.start())
    settler._show_cut()

    assert files_of(stream) == ["000000000001.json"]
    assert read(stream.files, journal) is not None
    assert stream.files.length(f"{folder}/000000000002.json") is None


def test_two_processes_leave_the_newer_file() -> None:
    stream = Stream()
    mine, other = CutFile(), CutFile()
    settler = settled(stream, 1, mine)
    other.bring_up_to_date(stream.journal())
    journal = stream.journal()
    stream.plan(1)
    settler.run(1, [1])
    stream.commit(1)
    settler.coordinator.settle()
    journal.read()
    other.begin(journal)
    other.update(journal, journal.view)
    settler.settle(0)

    assert files_of(stream) == ["000000000001.json"]


def test_a_stream_goes_on_if_the_file_cannot_be_written_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream()
    create = stream.files.create

    def full(path: str, data: bytes, *, durable: bool = True) -> bool:
        if "-cut/" in path:
            raise OSError("no space left on device")
        return create(path, data, durable=durable)

    monkeypatch.setattr(stream.files, "create", full)
    with caplog.at_level(logging.WARNING):
        settled(stream, 3)

    assert stream.journal().read().done_through == 2
    assert files_of(stream) == []
    assert [r.message for r in caplog.records if "watermark" in r.message] == [
        "watermark file not written, which does not affect the stream: no space left on device"
    ]


def test_a_torn_file_is_an_error_that_names_it() -> None:
    stream = Stream()
    settled(stream, 1)
    path = f"{folder_beside(stream.journal().path)}/000000000000.json"
    stream.files.content[path] = stream.files.content[path][:-20]

    with pytest.raises(JournalCorrupt, match=path):
        read(stream.files, stream.journal().path)


def test_a_journal_without_the_file_has_no_watermark_file_and_works() -> None:
    stream = Stream()
    stream.run(stream.start(), 0)  # without a settler, as older versions

    assert read(stream.files, stream.journal().path) is None
    Settler(stream.start()).settle(0)
    assert files_of(stream) == ["000000000000.json"]


def test_the_background_thread_writes_the_file_and_the_end_of_the_run_brings_it_up_to_date() -> None:
    stream = Stream()
    coordinator = stream.start()
    settler = Settler(coordinator)
    settler.start()
    stream.plan(0)
    settler.run(0, [0])
    stream.commit(0)
    settler.settle(0)  # by the thread that calls it: the file is the business of the other
    settler.stop()

    assert files_of(stream) == ["000000000000.json"]


def test_a_folder_that_another_stream_uses_is_left_alone() -> None:
    stream = Stream()
    other = f"{folder_beside(stream.journal().path)}/g000001.json"  # the journal of a stream that is called so
    stream.files.create(other, b"a record")

    settled(stream, 2)

    assert files_of(stream) == ["g000001.json"]
