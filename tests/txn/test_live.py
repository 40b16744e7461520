from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochStaged,
    Event,
    PartsRolled,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
    TakeoverBegun,
    TakeoverEnded,
)
from epochal.txn.files import LocalFiles
from epochal.txn.live import (
    Live,
    LiveEpoch,
    LiveHeld,
    LiveRefusal,
    LiveState,
    SinkEpoch,
    decode,
    encode,
    live_beside,
    name_of,
    number_of,
    read_live,
    read_lives,
)
from epochal.txn.live_fold import EPOCHS, REASON_LENGTH, LiveObserver, after
from epochal.txn.live_writer import LiveWriter
from epochal.txn.model import Outcome
from epochal.txn.process import this_process

LINEAGE = "1f0c9a2e"
PATIENCE = 30.0
FILES = LocalFiles(sync=False)


def live(journal: object = "/c/epochal", generation: int = 3, **facts: Any) -> Live:
    return Live(
        lineage=LINEAGE,
        generation=generation,
        start="5a17",
        journal=str(journal),
        process=this_process(),
        at=100.0,
        **facts,
    )


def started(generation: int = 3) -> Event:
    return StreamStarted(lineage=LINEAGE, stream="orders", at=100.0, generation=generation, sinks=("lake", "serving"))


def begun(epoch: int, at: float = 101.0) -> Event:
    return EpochBegun(lineage=LINEAGE, stream="orders", at=at, epoch=epoch, generation=3)


def staged(epoch: int, sink: str, at: float = 102.0) -> Event:
    return EpochStaged(
        lineage=LINEAGE, stream="orders", at=at, epoch=epoch, generation=3, sink=sink, rows=17, bytes=1024, seconds=1.0
    )


def prepared(epoch: int, at: float = 103.0) -> Event:
    return EpochPrepared(lineage=LINEAGE, stream="orders", at=at, epoch=epoch, generation=3, rows=17, seconds=2.0)


def decided(epoch: int, generation: int = 3) -> Event:
    return EpochDecided(
        lineage=LINEAGE, stream="orders", at=105.0, epoch=epoch, generation=generation, checkpointed=104.0
    )


def committed(epoch: int, sink: str, generation: int = 3) -> Event:
    return EpochCommitted(
        lineage=LINEAGE,
        stream="orders",
        at=106.0,
        epoch=epoch,
        generation=generation,
        sink=sink,
        outcome=Outcome.COMMITTED,
        rows=17,
        bytes=None,
        seconds=0.1,
        lag=2.0,
    )


def done(epoch: int) -> Event:
    return EpochDone(lineage=LINEAGE, stream="orders", at=107.0, epoch=epoch, generation=3, rows=17, seconds=0.1)


def held(sink: str = "serving") -> Event:
    return StreamHeld(
        lineage=LINEAGE,
        stream="orders",
        at=110.0,
        epoch=7,
        sink=sink,
        step="commit",
        reason="no route",
        tries=1,
        seconds=4.0,
    )


RESUMED = StreamResumed(lineage=LINEAGE, stream="orders", at=111.0, sink="serving", tries=3, seconds=5.0)


def folded(*events: Event) -> Live:
    state = live()
    for event in events:
        state = after(state, event)
    return state


def test_an_epoch_is_followed_from_its_arrival_until_every_sink_shows_it() -> None:
    state = folded(
        started(),
        begun(7),
        staged(7, "lake"),
        staged(7, "serving"),
        prepared(7),
        decided(7),
        committed(7, "lake"),
        committed(7, "serving"),
        done(7),
    )

    shown = SinkEpoch(staged=102.0, visible=106.0, rows=17, bytes=1024)
    assert state.epochs == (
        LiveEpoch(
            epoch=7,
            generation=3,
            begun=101.0,
            prepared=103.0,
            checkpointed=104.0,
            done=107.0,
            sinks={"lake": shown, "serving": shown},
        ),
    )
    assert (state.state, state.epoch, state.sink, state.settled) == (LiveState.IDLE, 7, None, None)


def test_while_an_epoch_is_staged_the_sink_that_is_next_is_named() -> None:
    assert (folded(started(), begun(7)).state, folded(started(), begun(7)).sink) == (LiveState.STAGING, "lake")
    state = folded(started(), begun(7), staged(7, "lake"))
    assert (state.state, state.sink, state.epoch) == (LiveState.STAGING, "serving", 7)
    state = folded(started(), begun(7), staged(7, "lake"), staged(7, "serving"), prepared(7))
    assert (state.state, state.sink) == (LiveState.IDLE, None)


def test_a_held_stream_says_since_when_and_goes_on_where_it_was() -> None:
    state = folded(started(), begun(7), held())

    assert state.state is LiveState.HELD
    assert state.sink == "serving"
    assert state.held == LiveHeld(sink="serving", step="commit", reason="no route", since=106.0, epoch=7)
    assert after(state, begun(8)).held is not None  # another epoch may be staged while a commit waits
    assert (after(state, RESUMED).state, after(state, RESUMED).held) == (LiveState.STAGING, None)
    assert folded(started(), held(), RESUMED).state is LiveState.IDLE


def test_an_epoch_that_another_generation_won_forgets_what_this_one_staged() -> None:
    state = folded(started(), begun(7), staged(7, "lake"), prepared(7), decided(7, generation=2))

    assert state.last(7) == LiveEpoch(epoch=7, generation=2, checkpointed=104.0)


def test_a_replayed_epoch_begins_anew() -> None:
    state = folded(started(), begun(7), staged(7, "lake"), begun(7, at=120.0))

    assert state.last(7) == LiveEpoch(epoch=7, generation=3, begun=120.0)


def test_the_end_says_whether_everything_is_settled_and_why_the_driver_stopped() -> None:
    refused = StreamRefused(lineage=LINEAGE, stream="orders", at=120.0, epoch=7, error="BadRows", reason="x" * 5000)
    state = folded(started(), begun(7), refused, StreamEnded(lineage=LINEAGE, stream="orders", at=121.0, settled=True))

    assert (state.state, state.settled) == (LiveState.ENDED, True)
    assert state.refused == LiveRefusal(error="BadRows", reason="x" * REASON_LENGTH, at=120.0, epoch=7)


def test_what_is_removed_or_rolled_changes_nothing() -> None:
    state = folded(started(), begun(7))
    aborted = AttemptAborted(lineage=LINEAGE, stream="orders", at=1.0, epoch=6, generation=2, sink="lake")
    rolled = PartsRolled(
        lineage=LINEAGE, stream="orders", at=1.0, after=6, generation=3, sink="lake", rows=1, bytes=None, seconds=0.1
    )

    assert after(after(state, aborted), rolled) == state


def test_only_the_last_epochs_are_kept() -> None:
    state = folded(started(), *(event for epoch in range(70) for event in (begun(epoch), prepared(epoch))))

    assert [epoch.epoch for epoch in state.epochs] == list(range(70 - EPOCHS, 70))


FULL = folded(started(), begun(6), done(6), begun(7), staged(7, "lake"), held())


@pytest.mark.parametrize(
    "state",
    [
        live(),
        FULL,
        folded(
            StreamRefused(
                lineage=LINEAGE, stream="orders", at=1.0, epoch=None, error="FencedOut", reason="generation 4"
            ),
            StreamEnded(lineage=LINEAGE, stream="orders", at=2.0, settled=False),
        ),
    ],
)
def test_what_is_written_is_read(state: Live) -> None:
    assert decode(encode(state)) == state


def test_the_file_has_the_published_keys() -> None:
    value = json.loads(encode(FULL))

    assert {"format", "lineage", "generation", "start", "journal", "host", "pid", "started", "at", "state"} < set(value)
    assert {"epoch", "sink", "held", "settled", "epochs"} < set(value)
    assert set(value["epochs"][0]) == {"epoch", "generation", "begun", "prepared", "checkpointed", "done", "sinks"}
    assert set(value["epochs"][1]["sinks"]["lake"]) == {"staged", "visible", "rows", "bytes"}
    assert set(value["held"]) == {"sink", "step", "reason", "since", "epoch"}
    assert value["state"] == "held"


def changed(**values: object) -> bytes:
    return json.dumps({**json.loads(encode(FULL)), **values}).encode()


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff",
    encode(FULL)[:-40],
    changed(format=2),
    changed(state="asleep"),
    changed(at="now"),
    changed(at=True),
    changed(generation=None),
    changed(epochs={}),
    changed(epochs=[7]),
    changed(held=[]),
    changed(sinks=[1]),
    changed(at=float("nan")),
    changed(at=float("inf")),
    changed(at=-1.0),
    changed(at=10**400),
    changed(pid=10**400),
    changed(epochs=[{**json.loads(encode(FULL))["epochs"][0], "begun": float("nan")}]),
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_torn_or_foreign_file_is_ignored_with_a_note_and_the_one_before_is_read(tmp_path: Path, data: bytes) -> None:
    journal = tmp_path / "epochal"
    folder = Path(live_beside(str(journal)))
    folder.mkdir()
    (folder / name_of(3, 17)).write_bytes(encode(FULL))
    (folder / name_of(3, 18)).write_bytes(data)

    reading = read_live(FILES, str(journal))

    assert reading.live == FULL
    assert len(reading.notes) == 1
    assert "g000003.000018.json was ignored" in reading.notes[0]


def test_the_highest_number_is_read_not_the_highest_name(tmp_path: Path) -> None:
    folder = tmp_path / "epochal-live"
    folder.mkdir()
    for generation, sequence in ((3, 999_999), (3, 1_000_000), (2, 5_000_000)):
        (folder / name_of(generation, sequence)).write_bytes(encode(live(epoch=sequence)))
    (folder / "notes.txt").write_text("foreign names are ignored")

    found = read_live(FILES, str(tmp_path / "epochal")).live

    assert found is not None
    assert found.epoch == 1_000_000
    assert number_of("g000003.1.json") is None


def test_a_file_that_came_with_a_copied_checkpoint_is_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "epochal-live"
    folder.mkdir()
    (folder / name_of(3, 1)).write_bytes(encode(live("/original/epochal")))

    assert read_live(FILES, str(tmp_path / "epochal"), place="/original/epochal").live is not None
    reading = read_live(FILES, str(tmp_path / "epochal"), place="/copy/epochal")
    assert reading.live is None
    assert "belongs to the journal in /original/epochal" in reading.notes[0]


def test_without_a_folder_there_is_nothing_and_no_note(tmp_path: Path) -> None:
    reading = read_live(FILES, str(tmp_path / "epochal"))

    assert (reading.live, reading.notes) == (None, ())


class Away(LocalFiles):
    def names(self, path: str) -> tuple[str, ...]:
        raise ConnectionError("no route to host")


def test_a_folder_that_cannot_be_read_is_a_note() -> None:
    reading = read_live(Away(), "/c/epochal")

    assert reading.live is None
    assert "no route to host" in reading.notes[0]


class Vanishing(LocalFiles):
    """Its driver replaces a file whenever one is about to be read."""

    def read(self, path: str) -> bytes:
        folder, name = os.path.split(path)
        generation, sequence = number_of(name) or (0, 0)
        os.rename(path, f"{folder}/{name_of(generation, sequence + 1)}")
        if sequence > 2:
            return super().read(f"{folder}/{name_of(generation, sequence + 1)}")
        return super().read(path)


def test_a_file_that_is_replaced_while_it_is_read_is_looked_up_again(tmp_path: Path) -> None:
    folder = tmp_path / "epochal-live"
    folder.mkdir()
    (folder / name_of(3, 1)).write_bytes(encode(FULL))

    assert read_live(Vanishing(), str(tmp_path / "epochal")).live == FULL


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def writer(journal: Path, generation: int = 3, *, pause: float = 0.001, heartbeat: float = 60.0) -> LiveWriter:
    journal.mkdir(exist_ok=True)
    state = live(journal, generation)
    return LiveWriter(FILES, str(journal), state, LiveObserver(), pause=pause, heartbeat=heartbeat)


def test_a_driver_leaves_one_file_that_says_how_it_ended(tmp_path: Path) -> None:
    journal = tmp_path / "epochal"
    writes = writer(journal)
    writes.start()
    for event in (started(), begun(7)):
        writes._observer(event)
    until(lambda: (found := read_live(FILES, str(journal)).live) is not None and found.state is LiveState.STAGING)
    for event in (staged(7, "lake"), prepared(7), StreamEnded(lineage=LINEAGE, stream="orders", at=1.0, settled=True)):
        writes._observer(event)
    writes.end()

    found = read_live(FILES, str(journal)).live
    assert found is not None
    assert (found.state, found.settled) == (LiveState.ENDED, True)
    assert len(os.listdir(f"{journal}-live")) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "epochal-live"]


def test_an_idle_driver_shows_that_it_lives(tmp_path: Path) -> None:
    journal = tmp_path / "epochal"
    writes = writer(journal, heartbeat=0.01)
    writes.start()
    until(lambda: read_live(FILES, str(journal)).live is not None)
    first = read_live(FILES, str(journal)).live
    assert first is not None

    until(lambda: (later := read_live(FILES, str(journal)).live) is not None and later.at > first.at)
    writes.end()


def test_events_are_written_at_most_once_a_pause(tmp_path: Path) -> None:
    journal = tmp_path / "epochal"
    writes = writer(journal, pause=3600.0)
    writes.start()
    until(lambda: read_live(FILES, str(journal)).live is not None)

    for epoch in range(100):
        writes._observer(begun(epoch))
    (name,) = os.listdir(f"{journal}-live")
    assert name == name_of(3, 1)
    writes.end()
    (name,) = os.listdir(f"{journal}-live")
    assert name == name_of(3, 2)


def test_a_new_start_goes_on_with_the_epochs_before_and_removes_older_files(tmp_path: Path) -> None:
    journal = tmp_path / "epochal"
    folder = tmp_path / "epochal-live"
    folder.mkdir()
    before = replace(FULL, journal=str(journal))
    (folder / name_of(2, 5)).write_bytes(encode(before))
    (folder / name_of(9, 9)).write_bytes(b"of a journal that was lost")
    (folder / ".epochal-tmp-g000002.000006.json-1f").write_bytes(b"half a file")
    writes = writer(journal)
    writes._observer(begun(7, at=500.0))
    writes.start()
    writes.end()

    found = read_live(FILES, str(journal)).live
    (name,) = os.listdir(folder)
    assert name.startswith("g000003.")
    assert found is not None
    assert [(e.epoch, e.begun) for e in found.epochs] == [(6, 101.0), (7, 500.0)]


def test_a_superseded_driver_says_how_it_ended_and_the_one_that_waited_removes_its_file(tmp_path: Path) -> None:
    journal = tmp_path / "epochal"
    old, new = writer(journal), writer(journal, generation=4)
    old.start()
    until(lambda: read_live(FILES, str(journal)).live is not None)
    new.keep_earlier = True
    new.start()
    until(lambda: (found := read_live(FILES, str(journal)).live) is not None and found.generation == 4)
    old._observer(StreamEnded(lineage=LINEAGE, stream="orders", at=1.0, settled=False))
    old.end()

    lives = read_lives(FILES, str(journal), place=str(journal))
    assert {number: live.state for number, (_, live) in lives.items()} == {3: LiveState.ENDED, 4: LiveState.IDLE}
    new.keep_earlier = False
    new.end()
    (name,) = os.listdir(f"{journal}-live")
    assert name.startswith("g000004.")


def test_a_driver_looks_for_a_newer_one_with_each_heartbeat_and_a_failure_stops_nothing(tmp_path: Path) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        raise ConnectionError("no route to host")

    writes = writer(tmp_path / "epochal", heartbeat=0.01)
    writes.watch = look
    writes.start()
    until(lambda: len(looks) > 2)
    writes.end()

    assert read_live(FILES, str(tmp_path / "epochal")).live is not None


def test_a_driver_that_waits_says_for_whom() -> None:
    waiting = TakeoverBegun(
        lineage=LINEAGE, stream="orders", at=1.0, generation=3, earlier=2, host="h", pid=7, since="", timeout=60.0
    )
    over = TakeoverEnded(
        lineage=LINEAGE, stream="orders", at=2.0, generation=3, earlier=2, host="h", pid=7, how="ended", seconds=1.0
    )

    state = folded(started(), waiting)
    assert (state.state, state.waits_for) == (LiveState.WAITING, "generation 2, pid 7 on h")
    assert decode(encode(state)) == state
    assert (after(state, over).state, after(state, over).waits_for) == (LiveState.IDLE, None)
    older = {name: value for name, value in json.loads(encode(live())).items() if name != "waits_for"}
    assert decode(json.dumps(older).encode()) == live()  # as an older version writes it


def test_a_checkpoint_that_was_removed_under_its_driver_is_not_created_again(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    writes = writer(checkpoint / "epochal", heartbeat=0.01)
    writes.start()
    until(lambda: read_live(FILES, str(checkpoint / "epochal")).live is not None)
    checkpoint.rename(tmp_path / "removed")
    for _ in range(20):
        writes._observer(begun(7))
    writes.end()

    assert not checkpoint.exists()


def test_a_folder_that_cannot_be_written_is_logged_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "epochal-live").write_text("a file where the folder should be")
    writes = writer(tmp_path / "epochal", heartbeat=0.01)
    writes.start()
    writes._observer(begun(7))
    until(lambda: writes._sequence > 5)
    writes.end()

    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert "live file could not be written" in caplog.text


def test_a_folder_that_another_stream_uses_is_neither_written_nor_removed(tmp_path: Path) -> None:
    other = tmp_path / "orders-live"  # the journal of a stream that is called so
    other.mkdir()
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders~2").mkdir()
    (other / "g000001.json").write_text("a record")

    for journal, earlier in (("orders", []), ("orders~2", [str(tmp_path / "orders")])):
        path = str(tmp_path / journal)
        writer = LiveWriter(FILES, path, live(path), LiveObserver(), earlier=earlier, pause=0.0)
        writer.start()
        writer.end()

    assert [file.name for file in other.iterdir()] == ["g000001.json"]
    assert read_live(FILES, str(tmp_path / "orders~2")).live is not None
