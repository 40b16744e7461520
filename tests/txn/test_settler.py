from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from epochal.testing import DirectoryParticipant
from epochal.txn.batches import BatchOutcome
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import DataLost, EpochalError, FencedOut, NotSettled, SettlingFailed, StoreAway
from epochal.txn.model import Attempt, Batch, Handle, Json, Outcome, Staged
from epochal.txn.settler import Backoff, Settler
from epochal.txn.view import View
from tests.txn.keeping import Keeping
from tests.txn.stream import QUERY, TAG, Rows, Stream

PATIENCE = 30.0  # seconds until a test that waits for a thread gives up


class FakeTime:
    """A clock that goes on when somebody waits; stands in for the stopping event too."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self.stopped = False
        self.meanwhile: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.meanwhile()

    def wait(self, seconds: float) -> bool:
        if not self.stopped:
            self.sleep(seconds)
        return self.stopped

    def is_set(self) -> bool:
        return self.stopped

    def set(self) -> None:
        self.stopped = True


class Flaky(DirectoryParticipant):
    """A folder that cannot commit for a while."""

    def __init__(self, stream: Stream, fails: float) -> None:
        super().__init__("sink", name="sink", files=stream.files)
        self.fails = fails
        self.fault: Exception = ConnectionError("no route to host")
        self.committed = threading.Event()
        self.away = 0  # how often staging finds the store away

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        if self.away > 0:
            self.away -= 1
            raise StoreAway("nobody answers")
        return super().stage(batch)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        if self.fails > 0:
            self.fails -= 1
            raise self.fault
        outcome = super().commit(attempt, handle)
        self.committed.set()
        return outcome


FOREVER = float("inf")


class Rig:
    """A settler of one query whose epoch 0 is decided, and whose sink fails."""

    def __init__(self, fails: float, *, max_pending: int = 1, backoff: Backoff | None = None) -> None:
        self.stream = Stream()
        self.sink = Flaky(self.stream, fails)
        self.time = FakeTime()
        self.coordinator: Coordinator[Rows] = self.stream.start(self.sink)
        self.failures: list[EpochalError] = []
        self.settler: Settler[Sequence[Json]] = Settler(
            self.coordinator,
            max_pending=max_pending,
            backoff=backoff,
            clock=self.time.clock,
            sleep=self.time.sleep,
            on_failure=self.failures.append,
        )
        self.settler._stopping = cast(threading.Event, self.time)
        self.stage(0)

    def stage(self, epoch: int) -> None:
        """An epoch up to commits/N."""
        self.stream.plan(epoch)
        self.coordinator.run(epoch, [epoch])
        self.stream.commit(epoch)

    def run(self, epoch: int) -> BatchOutcome:
        self.stream.plan(epoch)
        return self.settler.run(epoch, [epoch])

    def rows(self) -> list[Json]:
        return self.sink.rows()


def test_the_pause_doubles_up_to_its_limit() -> None:
    backoff = Backoff(first=1.0, limit=10.0)

    assert [backoff.after(n) for n in range(1, 7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert backoff.after(1_000_000) == 10.0


@pytest.mark.parametrize("fails", [0, 1, 200])
def test_a_commit_is_tried_until_the_store_answers(fails: int) -> None:
    rig = Rig(fails)

    rig.settler.settle()

    assert rig.rows() == [0]
    assert len(rig.time.waits) == fails
    assert rig.time.waits == [Backoff().after(n) for n in range(1, fails + 1)]


def test_the_stream_is_held_while_an_epoch_waits() -> None:
    rig = Rig(fails=5)
    staged: list[list[Attempt]] = []
    rig.time.meanwhile = lambda: staged.append(rig.sink.leftovers(QUERY))

    rig.run(1)

    assert staged == [[Attempt(QUERY, 0, 1)]] * 5
    assert rig.rows() == [0]
    assert rig.sink.leftovers(QUERY) == [Attempt(QUERY, 1, 1)]


def test_an_epoch_does_not_settle_again_what_was_seen_done(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(fails=0)
    rig.settler.settle()
    looks: list[str] = []
    monkeypatch.setattr(rig.coordinator, "settle", lambda: looks.append("settled"))

    rig.run(1)
    assert looks == []
    rig.stream.commit(1)
    rig.run(2)  # nobody has seen yet what became of epoch 1
    assert looks == ["settled"]


def test_the_stream_is_held_while_a_store_is_away_for_staging(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(fails=0)
    rig.sink.away = 3

    with caplog.at_level(logging.WARNING, logger="epochal"):
        ran = rig.run(1)

    assert ran is BatchOutcome.STAGED
    assert rig.time.waits == [Backoff().after(n) for n in (1, 2, 3)]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"stream {TAG} held",
        f"stream {TAG} resumed",
    ]


def test_stop_ends_a_batch_that_waits_for_a_store_to_stage() -> None:
    rig = Rig(fails=0)
    rig.sink.away = 1000
    rig.time.meanwhile = rig.time.set

    with pytest.raises(NotSettled, match="nobody answers"):
        rig.run(1)
    assert rig.sink.leftovers(QUERY) == []


def test_max_pending_lets_so_many_epochs_wait() -> None:
    rig = Rig(FOREVER, max_pending=2)
    rig.run(1)
    rig.stream.commit(1)
    waits_of_the_first = list(rig.time.waits)
    rig.time.meanwhile = rig.time.set

    with pytest.raises(NotSettled):
        rig.run(2)
    assert waits_of_the_first == []
    assert len(rig.time.waits) == 1


def test_stop_ends_a_held_batch_and_nothing_of_it_is_staged() -> None:
    rig = Rig(FOREVER)
    rig.time.meanwhile = rig.settler.stop

    with pytest.raises(
        NotSettled, match="stopped while waiting: sink 'sink', epoch 0: ConnectionError: no route to host"
    ):
        rig.run(1)
    assert rig.sink.leftovers(QUERY) == [Attempt(QUERY, 0, 1)]


def test_stop_ends_a_settle_without_a_deadline() -> None:
    rig = Rig(FOREVER)
    rig.time.meanwhile = rig.settler.stop

    with pytest.raises(NotSettled, match="stopped while waiting"):
        rig.settler.settle()


def test_a_store_that_stays_away_is_told_after_the_timeout() -> None:
    rig = Rig(FOREVER)

    with pytest.raises(NotSettled) as caught:
        rig.settler.settle(timeout=60.0)

    assert str(caught.value) == (
        "sink 'sink', epoch 0: ConnectionError: no route to host. The epoch is decided and safe: it will be committed "
        "at the next start of the query or by `epochal recover CHECKPOINT`"
    )
    assert 30.0 < sum(rig.time.waits) <= 60.0


def test_a_timeout_of_nothing_tries_once() -> None:
    rig = Rig(FOREVER)

    with pytest.raises(NotSettled):
        rig.settler.settle(timeout=0.0)

    assert rig.time.waits == []


def test_settling_with_a_deadline_pauses_between_tries_after_stop_too() -> None:
    rig = Rig(fails=3)
    rig.settler.stop()

    rig.settler.settle(timeout=60.0)

    assert rig.rows() == [0]
    assert rig.time.waits == [0.1, 0.2, 0.4]


def test_what_was_not_settled_is_settled_by_the_next_start() -> None:
    rig = Rig(FOREVER)
    with pytest.raises(NotSettled):
        rig.settler.settle(timeout=1.0)
    rig.sink.fails = 0

    rig.stream.start().settle()

    assert rig.rows() == [0]


def test_an_error_that_waiting_cannot_cure_is_raised_at_once() -> None:
    rig = Rig(FOREVER)
    rig.sink.fault = DataLost("gone")

    with pytest.raises(DataLost):
        rig.settler.settle()
    assert rig.time.waits == []


def take_journal_away(rig: Rig, monkeypatch: pytest.MonkeyPatch, *, looks: int) -> None:
    """So many times nobody can read it."""
    fails = iter([True] * looks)
    read = rig.coordinator.journal.read

    def flaky_read() -> View:
        if next(fails, False):
            raise OSError("name node is in safe mode")
        return read()

    monkeypatch.setattr(rig.coordinator.journal, "read", flaky_read)


def test_a_journal_that_goes_away_between_epochs_holds_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(fails=0)
    rig.settler.settle()
    take_journal_away(rig, monkeypatch, looks=3)

    assert rig.run(1) is BatchOutcome.STAGED
    assert rig.time.waits == [0.1, 0.2, 0.4]


def test_a_journal_that_cannot_be_read_holds_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(fails=0)
    take_journal_away(rig, monkeypatch, looks=6)

    assert rig.run(1) is BatchOutcome.STAGED
    assert len(rig.time.waits) == 3  # each round reads it twice: to settle, and to count
    assert rig.rows() == [0]


def test_holding_is_told_once_loudly_then_quietly_and_its_end_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="epochal")
    rig = Rig(fails=3, backoff=Backoff(first=1.0))
    caplog.clear()

    rig.settler.settle()

    held = f"stream {TAG} held: epoch 0 cannot be committed to sink: ConnectionError: no route to host"
    answer = [(r.levelname, r.getMessage().partition(", ")[0], vars(r)["event"]) for r in caplog.records]
    assert answer == [
        ("WARNING", held, "held"),
        ("INFO", f"{held} (for 1 s", "held"),
        ("INFO", f"{held} (for 3 s", "held"),
        ("INFO", "epoch 0 committed to sink: 1 row", "committed"),
        ("WARNING", f"stream {TAG} resumed: sink answers again after 7.0 s", "resumed"),
    ]
    assert [vars(r)["tries"] for r in caplog.records if vars(r)["event"] in ("held", "resumed")] == [1, 2, 3, 3]
    assert vars(caplog.records[0])["sink"] == "sink"


def test_a_second_outage_is_told_loudly_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(fails=1)
    rig.settler.settle()
    caplog.clear()
    rig.stage(1)
    rig.sink.fails = 1

    rig.settler.settle()

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_others_may_settle_while_a_batch_is_held() -> None:
    rig = Rig(FOREVER)
    outcomes: list[str] = []

    def from_another_thread() -> None:
        try:
            rig.settler.settle(timeout=0.0)
        except NotSettled:
            outcomes.append("not settled")

    def meanwhile() -> None:
        rig.time.meanwhile = rig.time.set
        thread = threading.Thread(target=from_another_thread)
        thread.start()
        thread.join(PATIENCE)

    rig.time.meanwhile = meanwhile

    with pytest.raises(NotSettled):
        rig.run(1)
    assert outcomes == ["not settled"]


def background(rig: Rig) -> Settler[Rows]:
    """The settler with its thread, in real time."""
    rig.settler._stopping = threading.Event()
    rig.settler.start()
    return rig.settler


def test_the_thread_settles_when_it_is_woken() -> None:
    rig = Rig(fails=0)
    settler = background(rig)
    try:
        settler.wake()

        assert rig.sink.committed.wait(PATIENCE)
    finally:
        settler.stop()
    assert rig.rows() == [0]


def test_the_thread_tries_again_by_itself() -> None:
    rig = Rig(fails=3, backoff=Backoff(first=0.001))
    settler = background(rig)
    try:
        settler.wake()

        assert rig.sink.committed.wait(PATIENCE)
    finally:
        settler.stop()
    assert rig.rows() == [0]


def test_the_thread_does_nothing_until_it_is_woken() -> None:
    rig = Rig(fails=0)
    settler = background(rig)

    settler.stop()

    assert rig.rows() == []


def test_what_ends_the_thread_is_told_and_raised_by_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(FOREVER)
    rig.sink.fault = DataLost("gone")
    settler = background(rig)
    settler.wake()
    assert settler._thread is not None
    settler._thread.join(PATIENCE)

    with pytest.raises(DataLost, match="gone"):
        rig.run(1)
    assert [str(fault) for fault in rig.failures] == ["gone"]
    assert ("epochal", logging.ERROR, f"stream {TAG} stopped: DataLost: gone") in caplog.record_tuples
    settler.stop()


def test_an_error_that_is_none_of_ours_ends_the_thread_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(0)
    nothing: dict[str, int] = {}
    monkeypatch.setattr(rig.coordinator, "settle", lambda: nothing["nothing"])
    settler = background(rig)
    settler.wake()
    assert settler._thread is not None
    settler._thread.join(PATIENCE)

    with pytest.raises(SettlingFailed, match=r"KeyError: 'nothing'. Decided epochs are safe: `epochal recover"):
        rig.run(1)
    assert [type(fault) for fault in rig.failures] == [SettlingFailed]
    assert f"stream {TAG} stopped: SettlingFailed: settling stopped with an unexpected error: KeyError" in caplog.text
    assert "Traceback" in caplog.text
    settler.stop()


IDLE = 60.0


class FakeWake:
    """Stands in for the event that wakes the thread: time goes on while it waits, and it ends where nothing is due."""

    def __init__(self, time: FakeTime, rounds: int = 100) -> None:
        self.time = time
        self.rounds = rounds
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None) -> None:
        self.waits.append(seconds)
        if seconds is None or len(self.waits) > self.rounds:
            self.time.set()
        else:
            self.time.now += seconds

    def clear(self) -> None:
        pass

    def set(self) -> None:
        pass


class KeepingRig:
    """A settler whose sink keeps parts open, with its loop run in this thread."""

    def __init__(self, *, rounds: int = 100) -> None:
        self.stream = Stream()
        self.time = FakeTime()
        self.sink = Keeping("sink", files=self.stream.files, idle=IDLE, clock=self.time.clock)
        self.failures: list[EpochalError] = []
        self.settler: Settler[Rows] = Settler(
            self.stream.start(self.sink),
            clock=self.time.clock,
            sleep=self.time.sleep,
            wall=self.time.clock,
            on_failure=self.failures.append,
        )
        self.wake = FakeWake(self.time, rounds)
        self.settler._stopping = cast(threading.Event, self.time)
        self.settler._wake = cast(threading.Event, self.wake)

    def stage(self, epoch: int) -> None:
        self.stream.plan(epoch)
        self.settler.run(epoch, [epoch])


def woken(rig: KeepingRig) -> list[float | None]:
    """Let the loop be woken once, and then run on the clock alone."""
    original = rig.wake.wait

    def first_wait(seconds: float | None) -> None:
        rig.wake.wait = original  # type: ignore[method-assign]  # from now on as it is

    rig.wake.wait = first_wait  # type: ignore[method-assign]  # somebody has called wake
    rig.settler._loop()
    return rig.wake.waits


def test_what_is_idle_is_closed_by_the_clock_without_another_epoch() -> None:
    rig = KeepingRig()
    rig.stage(0)
    rig.stream.commit(0)
    waits = woken(rig)

    assert waits == [IDLE, None]
    assert rig.sink.rows() == [0]


def test_nothing_is_waited_for_where_nothing_is_open() -> None:
    assert woken(KeepingRig()) == [None]


def test_a_later_epoch_puts_the_roll_off() -> None:
    rig = KeepingRig()
    rig.stage(0)
    rig.stream.commit(0)
    rig.time.now += IDLE / 2
    rig.stage(1)
    rig.stream.commit(1)
    waits = woken(rig)

    assert waits == [IDLE, None]
    assert rig.sink.rows() == [0, 1]


def test_what_is_due_while_an_epoch_is_under_way_does_not_make_the_thread_spin() -> None:
    rig = KeepingRig(rounds=12)
    rig.stage(0)
    rig.stream.commit(0)
    rig.settler.settle()
    rig.stage(1)  # PREPARED, and Spark takes its time
    rig.time.now += 2 * IDLE
    waits = woken(rig)

    assert waits[:3] == [Backoff().after(1), Backoff().after(2), Backoff().after(3)]
    assert max(wait or 0.0 for wait in waits) == Backoff().limit
    assert rig.sink.rows() == []


def test_a_roll_that_a_store_holds_is_tried_again_by_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = KeepingRig()
    rig.stage(0)
    rig.stream.commit(0)
    rig.settler.settle()
    rig.time.now += IDLE
    commit, fails = rig.sink.commit, iter([True] * 3)

    def flaky(attempt: Attempt, handle: Handle) -> Outcome:
        if next(fails, False):
            raise ConnectionError("no route to host")
        return commit(attempt, handle)

    monkeypatch.setattr(rig.sink, "commit", flaky)

    assert woken(rig) == [Backoff().after(1), Backoff().after(2), Backoff().after(3), None]
    assert rig.sink.rows() == [0]


def test_a_driver_that_is_superseded_is_told_by_its_timed_roll() -> None:
    rig = KeepingRig()
    rig.stage(0)
    rig.stream.commit(0)
    rig.settler.settle()
    rig.stream.start(rig.sink)
    rig.time.now += IDLE
    woken(rig)

    assert [type(fault) for fault in rig.failures] == [FencedOut]
    with pytest.raises(FencedOut):
        rig.stage(1)


def test_with_open_parts_no_epoch_is_staged_before_the_last_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = KeepingRig()
    rig.settler._max_pending = 5
    rig.stage(0)
    rig.stream.commit(0)
    monkeypatch.setattr(rig.sink, "commit", lambda *_: (_ for _ in ()).throw(ConnectionError("away")))
    rig.time.meanwhile = rig.time.set

    with pytest.raises(NotSettled):
        rig.stage(1)
    assert rig.sink.leftovers(QUERY) == [Attempt(QUERY, 0, 1)]
