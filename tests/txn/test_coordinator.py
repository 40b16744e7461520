"""What the golden traces do not show: choices, refusals and races of the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant
from epochal.testing.contract import claim_for
from epochal.txn import failpoints
from epochal.txn.batches import BatchOutcome
from epochal.txn.choices import Choices
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import (
    BadRows,
    CommitFailed,
    DataLost,
    FencedOut,
    ForeignTarget,
    JournalLost,
    OffsetsChanged,
    Refused,
    Rewound,
    TwoJournals,
)
from epochal.txn.model import Attempt, Batch, Handle, Json, Memory, Outcome, Staged
from epochal.txn.records import Prepared
from epochal.txn.states import State
from tests.txn.memory import MemoryFiles
from tests.txn.stream import QUERY, TAG, Rows, Stream


@pytest.fixture
def stream() -> Stream:
    return Stream()


class Hooked(DirectoryParticipant):
    """A folder where something happens in the middle of a call, once."""

    def __init__(self, stream: Stream, *, opened: Callable[[], None] | None = None) -> None:
        super().__init__("sink", name="sink", files=stream.files)
        self._opened = opened

    def open(self, lineage: str) -> Memory:
        memory = super().open(lineage)
        if self._opened:
            happen, self._opened = self._opened, None
            happen()
        return memory


class HookedCheckpoint(SparkCheckpoint):
    """A checkpoint where something happens right before or after the first look at commits/."""

    def __init__(self, stream: Stream, moment: str, event: Callable[[], None]) -> None:
        super().__init__(stream.files, stream.path)
        self._moment = moment
        self._event: Callable[[], None] | None = event

    def _happen(self, moment: str) -> None:
        if self._event and self._moment == moment:
            event, self._event = self._event, None
            event()

    def committed(self) -> int:
        self._happen("before")
        found = super().committed()
        self._happen("after")
        return found


class Failing(DirectoryParticipant):
    """A folder that raises in one of its calls."""

    def __init__(self, stream: Stream, call: str, fault: Exception, name: str = "sink") -> None:
        super().__init__(name, name=name, files=stream.files)
        self.call: str | None = call
        self.fault = fault

    def _may_fail(self, call: str) -> None:
        if self.call == call:
            raise self.fault

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        staged = super().stage(batch)
        self._may_fail("stage")
        return staged

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        self._may_fail("commit")
        return super().commit(attempt, handle)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._may_fail("abort")
        super().abort(attempt, handle)


class Following(DirectoryParticipant):
    """A folder that notes how far the query's event time has come when it stages."""

    def __init__(self, stream: Stream) -> None:
        super().__init__("sink", name="sink", files=stream.files)
        self.staged_at: list[float | None] = []

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        self.staged_at.append(batch.watermark)
        return super().stage(batch)


def test_a_sink_that_follows_the_watermark_is_told_it_before_each_epoch(stream: Stream) -> None:
    sink = Following(stream)
    coordinator = stream.start(sink)
    for epoch, watermark in enumerate((0, 5000)):
        stream.files.create(f"{stream.path}/offsets/{epoch}", f'v1\n{{"batchWatermarkMs":{watermark}}}\n0'.encode())
        coordinator.run(epoch, [epoch])
        stream.commit(epoch)
        coordinator.settle()

    assert sink.staged_at == [None, 5.0]


# Races between a start and a driver that is alive. The explorer found them; here each stands alone.


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_that_races_with_the_first_one_does_not_take_its_epoch_for_an_old_one(
    stream: Stream, moment: str
) -> None:
    def first_driver_runs_and_dies() -> None:
        first = stream.start()
        stream.plan(0)
        first.run(0, ["row"])
        stream.commit(0)

    second = stream.coordinator(checkpoint=HookedCheckpoint(stream, moment, first_driver_runs_and_dies))
    second.begin()
    second.settle()

    assert second.journal.read().base == 0
    assert stream.sink().rows() == ["row"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_that_races_with_a_checkpoint_is_not_told_that_the_journal_is_lost(stream: Stream, moment: str) -> None:
    first = stream.start()
    stream.plan(0)

    def first_driver_goes_on() -> None:
        first.run(0, ["row"])
        stream.commit(0)

    second = stream.coordinator(checkpoint=HookedCheckpoint(stream, moment, first_driver_goes_on))
    second.begin()
    second.settle()

    assert stream.sink().rows() == ["row"]


def test_settling_while_another_driver_prepares_and_commits_is_not_told_that_the_journal_is_lost(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stream.start()
    second = stream.start()
    stream.plan(0)
    read, reads = second.journal.read, iter([True])

    def goes_on_after_the_first_look() -> object:
        view = read()
        if next(reads, False):
            stream.journal().prepare(Prepared(0, 1, "", {}))
            stream.commit(0)
        return view

    monkeypatch.setattr(second.journal, "read", goes_on_after_the_first_look)

    second.settle()

    assert first.journal.read().waiting() == [0]


def test_a_start_does_not_reopen_a_journal_that_was_closed_meanwhile(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    stream.rewind(keep=-1)

    def another_start_chooses_new() -> None:
        stream.start(new=f"{TAG}@0")

    late = stream.coordinator(Hooked(stream, opened=another_start_chooses_new), adopt=f"{TAG}@0")
    late.begin()

    closed = stream.journal(1).read().latest
    assert closed is not None
    assert closed.closed
    assert late.lineage == f"{QUERY}~2"


# Choices.


def test_new_writes_the_epochs_that_come_back_beside_the_old_ones(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1, 2)
    stream.rewind(keep=0)

    again = stream.start(new=f"{TAG}@2")
    stream.run(again, 1, 2)

    assert again.lineage == f"{QUERY}~2"
    assert sorted(map(str, stream.sink().rows())) == ["0", "1", "1", "2", "2"]


def test_new_is_refused_until_the_store_answers_for_what_is_decided(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0, 1)
    stream.plan(2)
    first.run(2, [2])
    stream.commit(2)
    first.journal.decide(2, 1)
    stream.rewind(keep=0)
    away = Failing(stream, "commit", ConnectionError("away"))

    with pytest.raises(CommitFailed):
        stream.start(away, new=f"{TAG}@1")
    away.call = None
    stream.start(away, new=f"{TAG}@1")

    assert stream.sink().rows() == [0, 1, 2]


def test_new_keeps_what_is_in_doubt_until_the_new_stream_has_finished_that_epoch(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0, 1)
    stream.plan(2)
    first.run(2, [2])
    stream.rewind(keep=0)

    again = stream.start(new=f"{TAG}@1")
    kept = stream.sink().leftovers(QUERY)
    stream.run(again, 1, 2)
    stream.start()

    assert [attempt.epoch for attempt in kept] == [2]
    assert stream.sink().leftovers(QUERY) == []


def test_an_epoch_in_doubt_that_is_checkpointed_while_new_is_chosen_is_not_passed_over(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stream.start()
    stream.run(first, 0, 1)
    stream.plan(2)
    first.run(2, [2])
    claim_for(stream.sink(), "other", replaces=(QUERY,))  # so that there is something to choose
    choices = Choices(new=frozenset({f"{TAG}@1", "other@none"}))
    late: Coordinator[Rows] = Coordinator(
        journals=stream.journal,
        checkpoint=SparkCheckpoint(stream.files, stream.path),
        participants=[stream.sink()],
        choices=choices,
    )
    events = iter([lambda: stream.commit(2)])
    monkeypatch.setattr(
        failpoints, "hit", lambda name: next(events, lambda: None)() if name == "before-generation" else None
    )

    with pytest.raises(JournalLost, match="epoch 2 was in doubt"):
        late.begin()

    assert [attempt.epoch for attempt in stream.sink().leftovers(QUERY)] == [2]


def test_two_sinks_with_one_target_are_refused(stream: Stream) -> None:
    twins = [DirectoryParticipant("sink", name=name, files=stream.files) for name in ("one", "two")]

    with pytest.raises(Refused, match="'one' and 'two' both write to sink"):
        stream.start(*twins)

    assert stream.journal().read().latest is None


def test_an_epoch_in_doubt_that_is_committed_after_new_does_not_pass_unseen(stream: Stream) -> None:
    other = Stream(stream.files, query="99999999-bbbb", path="other")
    zombie = stream.start()
    stream.run(zombie, 0)
    stream.plan(1)
    zombie.run(1, ["in doubt"])
    other.start(adopt=f"{TAG}@0")
    second = stream.coordinator(new=[f"{TAG}@0", "99999999@none"])
    second.begin()
    stream.commit(1)

    with pytest.raises(JournalLost, match="epoch 1"):
        second.settle()
    with pytest.raises(JournalLost, match="epoch 1"):
        stream.start()


def test_new_seals_and_removes_what_the_closed_stream_has_staged_and_not_prepared(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    stream.files.create(f"sink/_staged/{QUERY}/000000000001.000001", b"")
    stream.rewind(keep=-1)

    stream.start(new=f"{TAG}@0")

    assert stream.journal(1).read().state(1, 1) is State.SEALED
    assert stream.sink().leftovers(QUERY) == []


def test_the_closed_streams_driver_stops(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0)
    stream.rewind(keep=-1)
    stream.start(new=f"{TAG}@0")

    with pytest.raises(FencedOut, match="generation 2 has taken over"):
        first.run(0, [0])


def test_a_coordinator_that_closed_its_own_journal_uses_the_next(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    stream.rewind(keep=-1)

    coordinator = stream.start(new=f"{TAG}@0")

    assert coordinator.journal.path.endswith("/2")
    assert coordinator.generation == 1
    assert stream.coordinator().journal.path.endswith("/2")


def test_adopt_skips_what_the_journal_has_done(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.rewind(keep=-1)
    again = stream.start(adopt=f"{TAG}@1")

    ran = [again.run(epoch, ["twice"]) for epoch in (0, 1)]

    assert ran == [BatchOutcome.SKIPPED, BatchOutcome.SKIPPED]
    assert stream.sink().rows() == [0, 1]


def test_adopt_is_remembered_by_later_starts(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.files.delete("checkpoint/epochal")
    stream.rewind(keep=0)
    stream.start(adopt=f"{TAG}@1")

    third = stream.start()

    assert third.run(1, ["twice"]) is BatchOutcome.SKIPPED
    stream.commit(1)
    third.settle()
    assert stream.sink().rows() == [0, 1]


def test_an_adopted_epoch_that_comes_back_with_other_offsets_is_refused(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.files.delete("checkpoint/epochal")
    stream.rewind(keep=0)
    stream.files.delete("checkpoint/offsets/1")
    stream.plan(1, "changed")
    again = stream.start(adopt=f"{TAG}@1")

    with pytest.raises(OffsetsChanged, match=r"sink 'sink' holds epoch 1 from other source offsets"):
        again.run(1, ["other"])
    assert stream.sink().rows() == [0, 1]
    assert stream.sink().leftovers(QUERY) == []


def test_a_sink_of_another_query_is_refused_and_nothing_is_written(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    other = Stream(stream.files, query="99999999-bbbb", path="other")
    before = dict(stream.files.content)

    with pytest.raises(ForeignTarget, match=f"{TAG}@0"):
        other.start()

    assert stream.files.content == before


def test_a_sink_of_another_query_can_be_adopted_and_the_other_writes_no_more(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0)
    other = Stream(stream.files, query="99999999-bbbb", path="other")

    taken = other.start(adopt=f"{TAG}@0")
    other.run(taken, 0)

    with pytest.raises(ForeignTarget, match="stream 99999999 has taken this stream's place"):
        stream.start()
    assert stream.sink().rows() == [0, 0]


def test_two_queries_can_write_to_one_sink_as_two_streams(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0)
    other = Stream(stream.files, query="99999999-bbbb", path="other")
    second = other.start(new=f"{TAG}@0")
    other.run(second, 0)
    stream.run(stream.start(), 1)
    other.run(other.start(), 1)

    assert stream.sink().epochs() == [0, 0, 1, 1]


# Refusals.


def test_the_journal_of_another_query_is_refused(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    copied = Stream(query="99999999-bbbb")
    copied.files.content.update({k: v for k, v in stream.files.content.items() if "epochal" in k})

    with pytest.raises(Refused, match=f"is the journal of query {QUERY}, the checkpoint belongs to 99999999-bbbb"):
        copied.start()


def test_a_lost_journal_is_refused(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.files.delete("checkpoint/epochal")

    with pytest.raises(JournalLost, match="has written it up to epoch 1, but the journal is empty"):
        stream.start()


def test_a_lost_journal_can_be_replaced_by_adopting(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.files.delete("checkpoint/epochal")

    again = stream.start(adopt=f"{TAG}@1")
    stream.run(again, 2)

    assert again.journal.read().base == 2
    assert stream.sink().rows() == [0, 1, 2]


def test_an_emptied_target_is_refused(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    stream.files.delete("sink")

    with pytest.raises(Rewound, match="epoch 0 was committed there, but its last one is none"):
        stream.start()


def test_a_target_that_was_changed_and_has_nothing_yet_is_no_target_that_was_emptied(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    moved = DirectoryParticipant("moved", name="sink", files=stream.files)
    stream.run(stream.start(), 0)
    stream.start(moved)  # and no epoch comes
    again = stream.start(moved)
    stream.run(again, 1)

    assert (stream.sink().rows(), moved.rows()) == ([0], [1])
    assert caplog.messages == ["the target of sink 'sink' was changed to moved; earlier epochs remain in sink"]


def test_what_begin_would_refuse_check_refuses_and_neither_writes_anything(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.rewind(keep=0)
    before = dict(stream.files.content)

    for call in ("check", "begin"):
        with pytest.raises(Rewound, match="the journal has epoch 1 as done"):
            getattr(stream.coordinator(), call)()
    assert stream.files.content == before


def test_check_binds_nobody(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    before = dict(stream.files.content)
    stream.coordinator().check()

    assert stream.files.content == before


def test_a_batch_without_its_offsets_is_refused(stream: Stream) -> None:
    coordinator = stream.start()

    with pytest.raises(Refused, match="offsets/0 is not in the checkpoint"):
        coordinator.run(0, ["row"])


def test_a_decided_epoch_with_other_offsets_is_refused(stream: Stream) -> None:
    stream.run(stream.start(), 0)
    stream.rewind(keep=-1)
    stream.files.delete("checkpoint/offsets/0")
    stream.plan(0, "changed")
    again = stream.start(adopt=f"{TAG}@0")

    with pytest.raises(OffsetsChanged, match="epoch 0 was written before, from other source offsets"):
        again.run(0, ["other"])


def test_an_epoch_from_before_the_journals_time_is_not_written_again(stream: Stream) -> None:
    stream.commit(6)
    first = stream.start()
    stream.plan(6)

    with pytest.raises(OffsetsChanged, match="epoch 6 was written before, long ago"):
        first.run(6, ["twice"])


def test_a_sink_that_was_removed_while_an_epoch_waits_for_it_is_named(stream: Stream) -> None:
    first = stream.start(stream.sink("a"), stream.sink("b"))
    stream.plan(0)
    first.run(0, ["row"])
    stream.commit(0)

    second = stream.start(stream.sink("a"))

    with pytest.raises(Refused, match="waits for sink 'b', which this writer does not have"):
        second.settle()


def test_lost_staged_data_of_a_decided_epoch_is_an_error_not_a_retry(stream: Stream) -> None:
    coordinator = stream.start()
    stream.plan(0)
    coordinator.run(0, ["row"])
    stream.commit(0)
    stream.files.delete("sink/_staged")

    with pytest.raises(DataLost, match="neither staged nor published"):
        coordinator.settle()


# A journal that is lost: generations are numbered from 1 again.


def test_a_driver_whose_journal_was_replaced_stops(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0)
    stream.files.delete("checkpoint/epochal")
    stream.plan(1)

    with pytest.raises(FencedOut, match="its own start is gone from the journal"):
        first.run(1, [1])
    stream.start(adopt=f"{TAG}@0")
    with pytest.raises(FencedOut, match="its own start is gone from the journal"):
        first.run(1, [1])
    assert stream.sink().leftovers(QUERY) == []


def test_a_driver_whose_journal_is_replaced_while_it_stages_removes_nothing_of_its_namesake(stream: Stream) -> None:
    def journal_is_lost_and_another_driver_starts() -> None:
        stream.files.delete("checkpoint/epochal")
        second = stream.start(adopt=f"{TAG}@none")
        second.run(0, ["row"])
        stream.commit(0)

    class Slow(DirectoryParticipant):
        def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
            staged = super().stage(batch)
            journal_is_lost_and_another_driver_starts()
            return staged

    first = stream.start(Slow("sink", name="sink", files=stream.files))
    stream.plan(0)

    with pytest.raises(FencedOut):
        first.run(0, ["row"])
    stream.start().settle()
    assert stream.sink().rows() == ["row"]


def test_what_a_namesake_of_a_lost_journal_staged_is_not_taken_for_ours(stream: Stream) -> None:
    first = stream.start()
    stream.run(first, 0)
    stream.plan(1)
    first.run(1, ["old"])
    stream.files.delete("checkpoint/epochal")
    stream.files.delete("checkpoint/offsets/1")
    stream.plan(1, "changed")

    again = stream.start(adopt=f"{TAG}@0")
    again.run(1, ["new"])
    stream.commit(1)
    again.settle()

    assert again.generation == 1
    assert stream.sink().rows() == [0, "new"]


# Batches that fail.


def test_sinks_that_got_different_rows_stage_nothing(stream: Stream) -> None:
    class Short(DirectoryParticipant):
        def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
            return replace(super().stage(batch), rows=len(batch.rows) - 1)

    coordinator = stream.start(stream.sink("a"), Short("b", name="b", files=stream.files))
    stream.plan(0)

    with pytest.raises(BadRows, match=r"different numbers of rows \(a 2, b 1\)"):
        coordinator.run(0, ["x", "y"])
    assert stream.sink("a").leftovers(QUERY) == stream.sink("b").leftovers(QUERY) == []
    assert coordinator.journal.read().waiting() == []


def test_a_sink_that_cannot_stage_leaves_nothing_staged_in_any(stream: Stream) -> None:
    broken = Failing(stream, "stage", OSError("disk full"), name="b")
    coordinator = stream.start(stream.sink("a"), broken)
    stream.plan(0)

    with pytest.raises(OSError, match="disk full"):
        coordinator.run(0, ["row"])
    assert stream.sink("a").leftovers(QUERY) == stream.sink("b").leftovers(QUERY) == []


def test_what_could_not_be_dropped_is_left_to_the_next_start(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Failing):
        def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
            super().stage(batch)
            raise OSError("disk full")

    stuck = Stuck(stream, "abort", OSError("still full"))
    coordinator = stream.start(stuck)
    stream.plan(0)
    with pytest.raises(OSError, match="disk full"):
        coordinator.run(0, ["row"])
    left = stream.sink().leftovers(QUERY)
    stream.start()

    assert left == [Attempt(QUERY, 0, 1)]
    assert stream.sink().leftovers(QUERY) == []
    assert "staged data was left for the next start" in caplog.messages


def test_a_batch_that_comes_twice_to_one_generation_does_not_remove_what_it_prepared(stream: Stream) -> None:
    coordinator = stream.start()
    stream.plan(0)
    coordinator.run(0, ["row"])

    again = coordinator.run(0, ["row"])
    stream.commit(0)
    coordinator.settle()

    assert again is BatchOutcome.SKIPPED
    assert stream.sink().rows() == ["row"]


def test_a_store_that_cannot_abort_is_tried_again(stream: Stream) -> None:
    stream.start()
    stream.plan(0)
    failing = Failing(stream, "", OSError("away"))
    coordinator = stream.start(failing)
    stream.journal().seal(0, 1, by=2)
    coordinator.run(0, ["row"])
    stream.commit(0)
    failing.call = "abort"

    with pytest.raises(CommitFailed, match="sink 'sink', epoch 0: OSError: away"):
        coordinator.settle()
    failing.call = None
    coordinator.settle()

    assert coordinator.journal.read().state(0, 2) is State.DONE


def test_a_query_without_sinks_still_counts_its_epochs() -> None:
    stream = Stream(MemoryFiles())
    coordinator = stream.coordinator(retain=0)
    coordinator._participants = {}
    coordinator.begin()
    stream.plan(0)

    assert coordinator.run(0, ["row"]) is BatchOutcome.STAGED


# Counting and telling.


def test_pending_counts_decided_epochs_below_the_one_that_comes(stream: Stream) -> None:
    coordinator = stream.start(Failing(stream, "commit", OSError("away")))
    for epoch in (0, 1):
        stream.plan(epoch)
        coordinator.run(epoch, [epoch])
        stream.commit(epoch)

    assert [coordinator.pending_below(epoch) for epoch in (0, 1, 2)] == [0, 1, 2]


def test_commits_and_starts_are_logged_with_their_facts(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="epochal")

    stream.run(stream.start(), 0)

    started, committed = (vars(record) for record in caplog.records)
    assert started["message"] == f"stream {TAG} started: generation 1, sinks sink"
    assert (started["event"], started["generation"], started["lineage"]) == ("started", 1, QUERY)
    assert committed["message"].startswith("epoch 0 committed to sink: 1 row, ")
    facts = {name: committed[name] for name in ("event", "epoch", "sink", "outcome", "rows")}
    assert facts == {"event": "committed", "epoch": 0, "sink": "sink", "outcome": "committed", "rows": 1}


def test_a_journal_whose_last_epoch_came_from_other_offsets_is_not_this_checkpoints(stream: Stream) -> None:
    stream.run(stream.start(), 0, 1)
    stream.files.delete(f"{stream.path}/offsets/1")
    stream.plan(1, "of a copy")

    with pytest.raises(OffsetsChanged, match="two copies of a checkpoint have used one journal"):
        stream.start()


def test_an_epoch_that_a_namesake_has_recorded_is_not_taken_for_ones_own() -> None:
    stream = Stream(MemoryFiles())
    idle = stream.start()
    stream.plan(0)
    stream.files.delete("checkpoint/epochal")
    other = stream.start()  # the journal was lost before its first epoch: this start has the number of the idle one
    with pytest.raises(TwoJournals):
        idle.run(0, ["foreign"])  # it has recorded PREPARED before it found out

    with pytest.raises(FencedOut, match="another driver with the same number has recorded the epoch"):
        other.run(0, ["row"])
    third = stream.start()
    third.run(0, ["row"])
    stream.commit(0)
    third.settle()
    assert stream.sink().rows() == ["row"]


def test_new_is_refused_before_the_journal_is_closed_if_another_stream_in_the_target_is_not_answered_too() -> None:
    stream = Stream()
    coordinator = stream.start()
    stream.run(coordinator, 0)
    other = Stream(files=stream.files, query="99999999-bbbb", path="other")
    other.run(other.start(adopt=f"{TAG}@0"), 0)
    before = dict(stream.files.content)

    for begin in (stream.coordinator(new=f"{TAG}@0").check, stream.coordinator(new=f"{TAG}@0").begin):
        with pytest.raises(ForeignTarget, match="new='99999999@0'"):
            begin()
        assert stream.files.content == before

    going_on = stream.coordinator(new=[f"{TAG}@0", "99999999@0"])
    going_on.check()
    going_on.begin()
    stream.run(going_on, 1)
    assert stream.sink().rows() == [0, 0, 1]
