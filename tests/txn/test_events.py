"""What observers see: the events of each course that an epoch can take, in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import BadRows, DataLost, FencedOut, JournalLost, NotSettled, StoreAway
from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochSkipped,
    EpochStaged,
    Event,
    Observers,
    PartsOpen,
    PartsRolled,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
)
from epochal.txn.model import Attempt, Batch, Handle, Json, Outcome, Staged
from epochal.txn.participant import Participant
from epochal.txn.recovery import Recovery, Sinks
from epochal.txn.reporting import Reporter, reporter, stream_name
from epochal.txn.settler import Backoff, Settler
from tests.txn.keeping import Keeping
from tests.txn.stream import QUERY, TAG, Rows, Stream

NOW = 1_800_000_000.0


class Fragile(Keeping):
    """A folder that fails as often as it is asked to, in one of its calls."""

    def __init__(self, stream: Stream, name: str = "sink") -> None:
        super().__init__(name, name=name, files=stream.files, most=0)
        self.faults: dict[str, list[Exception]] = {}

    def _fail(self, call: str) -> None:
        if self.faults.get(call):
            raise self.faults[call].pop(0)

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        self._fail("stage")
        return super().stage(batch)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        self._fail("commit")
        return super().commit(attempt, handle)


@dataclass
class Watched:
    """A stream whose events are collected. The clock stands still; each look at the other one takes a second."""

    stream: Stream = field(default_factory=Stream)
    seen: list[Event] = field(default_factory=list)
    ticks: float = 0.0

    def coordinator(self, *sinks: Participant[Rows], eager: bool = False, begins: bool = True) -> Coordinator[Rows]:
        made = self.stream.coordinator(*sinks, eager=eager)
        made.reporter.observers = Observers([self.seen.append], stream="orders", clock=lambda: NOW, ticks=self._tick)
        if begins:
            made.begin()
        return made

    def commit(self, epoch: int, *, ago: float = 0.25) -> None:
        self.stream.commit(epoch)
        self.stream.files.times[f"{self.stream.path}/commits/{epoch}"] = NOW - ago

    def run(self, coordinator: Coordinator[Rows], epoch: int, rows: int = 1) -> None:
        """An epoch that goes all the way."""
        self.stream.plan(epoch)
        coordinator.run(epoch, list(range(rows)))
        self.commit(epoch)
        coordinator.settle()

    def story(self) -> list[str]:
        """What was seen since the last time, in short."""
        seen, self.seen[:] = [*self.seen], []
        return [_short(event) for event in seen]

    def _tick(self) -> float:
        self.ticks += 1.0
        return self.ticks


def _short(event: Event) -> str:
    match event:
        case StreamStarted():
            doubt = "".join(f" doubt {epoch}" for epoch in event.in_doubt)
            return f"started {event.generation} {'+'.join(event.sinks)}{doubt}"
        case EpochStaged():
            return f"staged {event.epoch}.{event.generation} {event.sink} {event.rows}"
        case EpochPrepared() | EpochBegun() | EpochSkipped() | EpochDecided() | EpochDone():
            return f"{event.kind} {event.epoch}.{event.generation}"
        case EpochCommitted():
            already = " already" if event.outcome is Outcome.ALREADY_COMMITTED else ""
            return f"committed {event.epoch}.{event.generation} {event.sink} {event.rows}{already}"
        case AttemptAborted():
            return f"aborted {event.epoch}.{event.generation} {event.sink}"
        case StreamHeld():
            return f"held {event.step} {event.epoch} {event.sink} {event.reason} x{event.tries}"
        case StreamResumed():
            return f"resumed {event.sink} x{event.tries}"
        case PartsRolled():
            return f"rolled after {event.after} {event.sink}"
        case PartsOpen():
            return f"open {event.sink} {event.parts}"
        case StreamRefused():
            return f"refused {event.epoch} {event.error}"
        case _:
            return event.kind


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_plain_epoch(watched: Watched) -> None:
    coordinator = watched.coordinator(watched.stream.sink("files"), watched.stream.sink("lake"))
    watched.run(coordinator, 0, rows=3)

    assert watched.story() == [
        "started 1 files+lake",
        "begun 0.1",
        "staged 0.1 files 3",
        "staged 0.1 lake 3",
        "prepared 0.1",
        "decided 0.1",
        "committed 0.1 files 3",
        "committed 0.1 lake 3",
        "done 0.1",
    ]


def test_events_have_who_when_how_much_and_how_long(watched: Watched) -> None:
    coordinator = watched.coordinator(watched.stream.sink("files"))
    watched.run(coordinator, 0, rows=3)

    by_kind = {event.kind: event for event in watched.seen}
    assert {(e.lineage, e.stream, e.at) for e in watched.seen} == {(QUERY, "orders", NOW)}
    staged, committed, decided = by_kind["staged"], by_kind["committed"], by_kind["decided"]
    assert isinstance(staged, EpochStaged)
    assert isinstance(committed, EpochCommitted)
    assert isinstance(decided, EpochDecided)
    size = watched.stream.files.length(f"files/{Attempt(QUERY, 0, 1).number}.{QUERY}")
    assert (staged.rows, staged.bytes, staged.seconds) == (3, size, 1.0)
    assert (committed.rows, committed.bytes, committed.seconds) == (3, size, 1.0)
    assert (decided.checkpointed, committed.lag) == (NOW - 0.25, 0.25)
    assert isinstance(by_kind["done"], EpochDone)
    assert by_kind["done"].rows == 3
    assert by_kind["done"].seconds > 0


def test_a_lag_is_never_negative_because_another_machine_has_another_clock(watched: Watched) -> None:
    coordinator = watched.coordinator()
    watched.stream.plan(0)
    coordinator.run(0, [1])
    watched.commit(0, ago=-30.0)
    coordinator.settle()

    assert [e.lag for e in watched.seen if isinstance(e, EpochCommitted)] == [0.0]


def test_a_lag_is_unknown_where_the_file_cannot_be_asked(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = watched.coordinator()
    watched.stream.plan(0)
    coordinator.run(0, [1])
    watched.commit(0)

    def away(path: str) -> float | None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(watched.stream.files, "modified", away)
    coordinator.settle()

    assert watched.story()[-2:] == ["committed 0.1 sink 1", "done 0.1"]
    assert caplog.records == []


def test_a_replay_with_a_loser(watched: Watched) -> None:
    old = watched.coordinator()
    watched.stream.plan(0)
    old.run(0, [1, 2])
    watched.story()

    new = watched.coordinator()
    new.run(0, [1, 2])
    watched.commit(0)
    new.settle()

    assert watched.story() == [
        "started 2 sink doubt 0",
        "begun 0.2",
        "staged 0.2 sink 2",
        "prepared 0.2",
        "aborted 0.1 sink",
        "decided 0.2",
        "committed 0.2 sink 2",
        "done 0.2",
    ]


def test_a_loser_that_might_have_won_is_removed_when_the_winner_is_visible(watched: Watched) -> None:
    old = watched.coordinator()
    watched.stream.plan(0)
    old.run(0, [1, 2])
    new = watched.coordinator()
    watched.commit(0)  # by the old driver, which was only slow
    watched.story()

    new.run(0, [1, 2])
    new.settle()

    assert watched.story()[-4:] == ["decided 0.2", "committed 0.2 sink 2", "aborted 0.1 sink", "done 0.2"]


def test_the_winner_may_be_the_older_attempt(watched: Watched) -> None:
    old = watched.coordinator()
    watched.stream.plan(0)
    old.run(0, [1, 2])
    watched.commit(0)
    watched.story()

    watched.coordinator().settle()

    assert watched.story() == ["started 2 sink doubt 0", "decided 0.1", "committed 0.1 sink 2", "done 0.1"]


def test_eager_decides_in_the_batch_and_has_no_lag(watched: Watched) -> None:
    coordinator = watched.coordinator(eager=True)
    watched.stream.plan(0)
    coordinator.run(0, [1])
    coordinator.settle()
    lags = [e.lag for e in watched.seen if isinstance(e, EpochCommitted)]

    assert watched.story() == [
        "started 1 sink",
        "begun 0.1",
        "staged 0.1 sink 1",
        "prepared 0.1",
        "decided 0.1",
        "committed 0.1 sink 1",
        "done 0.1",
    ]
    assert lags == [None]
    watched.coordinator(eager=True).run(0, [1])
    assert watched.story() == ["started 2 sink", "skipped 0.2"]


class Time:
    """Waits take no time and are counted."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_held_and_resumed_shows_a_sink_once_that_was_not_the_one_to_fail(watched: Watched) -> None:
    good, bad = watched.stream.sink("files"), Fragile(watched.stream, "lake")
    coordinator = watched.coordinator(good, bad)
    watched.stream.plan(0)
    coordinator.run(0, [1])
    watched.commit(0)
    bad.faults["commit"] = [ConnectionError("no route\n\tat Client.java:12"), PermissionError("denied")]
    time = Time()
    settler = Settler(coordinator, backoff=Backoff(first=1.0), clock=time, sleep=time.sleep)
    watched.story()

    settler.settle(timeout=60)
    held = [event for event in watched.seen if isinstance(event, StreamHeld | StreamResumed)]

    assert watched.story() == [
        "decided 0.1",
        "committed 0.1 files 1",
        "held commit 0 lake ConnectionError: no route x1",
        "held commit 0 lake PermissionError: denied x2",
        "committed 0.1 lake 1",
        "done 0.1",
        "resumed lake x2",
    ]
    assert [event.seconds for event in held] == [0.0, 1.0, 3.0]


def test_a_stage_that_is_tried_again_names_its_sink_and_takes_back_what_others_staged(watched: Watched) -> None:
    good, bad = watched.stream.sink("files"), Fragile(watched.stream, "lake")
    coordinator = watched.coordinator(good, bad)
    watched.stream.plan(0)
    bad.faults["stage"] = [StoreAway("nobody answers"), StoreAway("nobody answers")]
    settler = Settler(coordinator, backoff=Backoff(first=0.001))
    watched.story()

    settler.run(0, [1])

    assert watched.story() == [
        "begun 0.1",
        "staged 0.1 files 1",
        "aborted 0.1 files",
        "held stage 0 lake StoreAway: nobody answers x1",
        "staged 0.1 files 1",
        "aborted 0.1 files",
        "held stage 0 lake StoreAway: nobody answers x2",
        "staged 0.1 files 1",
        "staged 0.1 lake 1",
        "prepared 0.1",
        "resumed lake x2",
    ]


def test_a_journal_that_cannot_be_read_is_named(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = watched.coordinator()
    watched.stream.plan(0)
    names: Callable[[str], tuple[str, ...]] = watched.stream.files.names
    looks = iter([True])

    def away(path: str) -> tuple[str, ...]:
        if path.endswith("epochal/1") and next(looks, False):
            raise OSError("the disk is gone")
        return names(path)

    settler = Settler(coordinator, backoff=Backoff(first=0.001))
    monkeypatch.setattr(watched.stream.files, "names", away)
    watched.story()

    settler.settle(timeout=10)

    assert watched.story() == ["held journal None journal OSError: the disk is gone x1", "resumed journal x1"]


def test_parts_stay_open_and_are_rolled_between_epochs(watched: Watched) -> None:
    coordinator = watched.coordinator(Keeping("lake", name="lake", files=watched.stream.files))
    watched.run(coordinator, 0)
    coordinator.roll(every=True)

    assert watched.story()[-4:] == ["done 0.1", "open lake 1", "rolled after 0 lake", "open lake 0"]


def test_a_roll_that_another_process_repeats_is_not_rolled_twice(watched: Watched) -> None:
    lake = Keeping("lake", name="lake", files=watched.stream.files)
    coordinator = watched.coordinator(lake)
    watched.run(coordinator, 0)
    coordinator.roll(every=True)
    for name in watched.stream.files.names(f"{watched.stream.path}/epochal/1"):
        if name.startswith("r") and ".done" in name:
            watched.stream.files.delete(f"{watched.stream.path}/epochal/1/{name}")
    watched.story()

    watched.coordinator(Keeping("lake", name="lake", files=watched.stream.files)).settle()

    assert watched.story() == ["started 2 lake"]


def test_a_refused_batch_is_reported_once(watched: Watched) -> None:
    coordinator = watched.coordinator()
    watched.coordinator()
    watched.stream.plan(0)
    watched.story()

    settler = Settler(coordinator)
    with pytest.raises(FencedOut) as caught:
        settler.run(0, [1])
    coordinator.reporter.refused(QUERY, caught.value, 0)  # a layer above reports it too

    assert watched.story() == ["refused 0 FencedOut"]


def test_a_refused_start_is_reported(watched: Watched) -> None:
    watched.run(watched.coordinator(), 0)
    watched.stream.files.delete(f"{watched.stream.path}/epochal")
    watched.story()

    with pytest.raises(JournalLost):
        watched.coordinator()

    assert watched.story() == ["refused None JournalLost"]


def test_rows_that_differ_between_sinks_are_taken_back_and_refused(watched: Watched) -> None:
    class Blind(Fragile):
        def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
            whole = super().stage(batch)
            return Staged(whole.handle, 0)

    coordinator = watched.coordinator(watched.stream.sink("files"), Blind(watched.stream, "lake"))
    watched.stream.plan(0)
    watched.story()

    with pytest.raises(BadRows):
        Settler(coordinator).run(0, [1])

    assert watched.story() == [
        "begun 0.1",
        "staged 0.1 files 1",
        "staged 0.1 lake 0",
        "aborted 0.1 files",
        "aborted 0.1 lake",
        "refused 0 BadRows",
    ]


def test_a_stop_while_the_stream_is_held_is_no_refusal(watched: Watched) -> None:
    bad = Fragile(watched.stream)
    coordinator = watched.coordinator(bad)
    watched.stream.plan(0)
    bad.faults["stage"] = [StoreAway("nobody answers")] * 5
    settler = Settler(coordinator)
    settler.give_up()
    watched.story()

    with pytest.raises(NotSettled):
        settler.run(0, [1])

    assert "refused 0 NotSettled" not in watched.story()


def test_recovery_without_a_driver_reports_what_it_finishes(watched: Watched) -> None:
    driver = watched.coordinator()
    watched.stream.plan(0)
    driver.run(0, [1])
    watched.commit(0)
    seen: list[Event] = []
    recovery = Recovery(
        journals=watched.stream.journal,
        checkpoint=driver._checkpoint,
        sinks=Sinks(driver.journal.read(), lambda _: watched.stream.sink()),
        on_commit=lambda *_: None,
        reporter=Reporter(Observers([seen.append], stream="orders", clock=lambda: NOW)),
    )

    recovery.settle()

    assert [_short(event) for event in seen] == ["decided 0.1", "committed 0.1 sink 1", "done 0.1"]
    watched.story()
    driver.settle()
    assert watched.story() == []  # the journal already says that it is done


def test_an_observer_that_raises_gets_no_further_event_and_changes_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise ZeroDivisionError("broken observer")

    coordinator = watched.coordinator(begins=False)
    coordinator.reporter.observers = Observers([broken, watched.seen.append], stream="orders")
    coordinator.begin()
    watched.run(coordinator, 0)

    assert len(calls) == 1
    assert watched.story()[-1] == "done 0.1"
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "gets no further events: broken observer" in caplog.text


def test_an_observer_that_exits_in_a_thread_of_ours_does_not_end_the_thread(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def exits(event: Event) -> None:
        raise SystemExit(3)

    observers = Observers([exits, watched.seen.append])
    event = StreamEnded(lineage="", stream="", at=0.0, settled=True)
    ended: list[bool] = []

    def settles() -> None:
        observers.emit(event)
        ended.append(True)

    thread = threading.Thread(target=settles)
    thread.start()
    thread.join()

    assert ended == [True]
    assert watched.seen == [event]
    assert "gets no further events: 3" in caplog.text
    with pytest.raises(SystemExit):  # in the main thread it may be a signal's handler that ends the process
        Observers([exits]).emit(event)


def test_an_event_that_cannot_be_made_stops_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Keeping("lake", name="lake", files=watched.stream.files)
    monkeypatch.setattr(lake, "open_rows", lambda state: 1 / 0)
    coordinator = watched.coordinator(lake)
    watched.run(coordinator, 0)
    watched.run(coordinator, 1)

    assert watched.story()[-1] == "done 1.1"
    assert [r.getMessage() for r in caplog.records] == ["an event could not be reported: division by zero"]


def test_the_end_of_a_stream(watched: Watched) -> None:
    coordinator = watched.coordinator()
    watched.story()

    coordinator.reporter.ended(coordinator.lineage, settled=True)

    assert watched.seen == [StreamEnded(lineage=QUERY, stream="orders", at=NOW, settled=True)]


@pytest.mark.parametrize(
    ("checkpoint", "query", "name"),
    [
        ("/data/checkpoints/orders", None, "orders"),
        ("/data/checkpoints/orders/", "clicks", "clicks"),
        ("hdfs://host:9000/orders/checkpoint", None, "orders"),
        ("/checkpoints", None, "checkpoints"),
        ("file:/data/orders/_checkpoints", "", "orders"),
    ],
)
def test_a_stream_is_named_after_its_query_or_the_folder_of_its_checkpoint(
    checkpoint: str, query: str | None, name: str
) -> None:
    assert stream_name(checkpoint, query) == name


def test_a_coordinator_without_a_name_is_called_by_its_lineage(stream: Stream) -> None:
    assert stream.coordinator().reporter.observers.stream == TAG


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_observers_come_after_the_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="epochal")
    seen: list[int] = []
    reports = reporter([lambda _: seen.append(len(caplog.records))], stream="orders")

    reports.refused(QUERY, DataLost("gone"), 42)

    assert seen == [1]
    assert caplog.messages == ["stream orders stopped at epoch 42: DataLost: gone"]
