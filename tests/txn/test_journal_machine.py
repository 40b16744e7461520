"""Journal, fold, next_step and sweep against a model of a few dicts, in any order of events.

Two `Journal` objects on one folder take turns, as two drivers do: one may hold a view that the other
has made old. The model knows nothing of files.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from epochal.txn.errors import JournalCorrupt, JournalLost
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Json, Staged
from epochal.txn.plan import Decide, Finish, Removal, decided_not_done, epochs_in_doubt, next_step, removal_of
from epochal.txn.records import GenerationStarted, Prepared, Roll
from epochal.txn.row_digests import RowDigest
from epochal.txn.state.policy import Knobs, Policy
from epochal.txn.states import State
from epochal.txn.view import View
from tests.txn.memory import Crash, MemoryFiles, VolatileFiles

AHEAD = 2  # epochs that can be prepared beyond the last committed one
epochs = st.integers(min_value=0, max_value=AHEAD)
turns = st.integers(min_value=0, max_value=1)


def changes_of(epoch: int, generation: int) -> dict[str, Json]:
    """What an attempt changes: a hot key, and one that lives for three epochs."""
    return {"hot": [epoch, generation], f"key {epoch}": generation, f"key {epoch - 3}": None}


def changes_of_roll(epoch: int, number: int) -> dict[str, Json]:
    return {"hot": None, f"rolled {epoch}": number, f"key {epoch}": None}


def told_or_read(files: MemoryFiles) -> str | View:
    """What a new process reads, or the error that it tells."""
    try:
        return Journal(files, "journal").read()
    except JournalCorrupt as fault:
        return str(fault)


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = VolatileFiles()
        self.journals = self.opened()
        self.generation = 0
        self.attempts: dict[tuple[int, int], str] = {}  # (epoch, generation) -> "prepared" or "sealed"
        self.committed = NO_EPOCH
        self.decided: dict[int, int] = {}
        self.done = NO_EPOCH
        self.floor = NO_EPOCH
        self.winners: dict[int, int] = {}  # of every epoch that was ever decided
        self.rolls: dict[int, int] = {}  # epoch -> rolls after it
        self.rolled: dict[int, int] = {}  # generation -> its rolls
        self.rolled_by: set[tuple[int, int]] = set()  # generation, and the epoch before

    def opened(self) -> list[Journal]:
        policy = Policy(knobs=Knobs(dirty_ratio=0.3))
        return [Journal(self.files, "journal", clock=lambda: 0.0, policy=policy) for _ in range(2)]

    def fresh(self) -> View:
        return Journal(self.files, "journal").read()

    def prepared(self, epoch: int) -> list[int]:
        return sorted(g for (e, g), state in self.attempts.items() if e == epoch and state == "prepared")

    def offsets(self, epoch: int) -> str:
        return f"offsets of {epoch}"

    @rule(turn=turns)
    def claim(self, turn: int) -> None:
        claimed = self.journals[turn].claim(GenerationStarted(self.generation + 1, "query", base=0))

        assert claimed
        self.generation += 1

    @precondition(lambda self: self.generation)
    @rule(turn=turns)
    def claim_a_number_that_is_taken(self, turn: int) -> None:
        assert not self.journals[turn].claim(GenerationStarted(self.generation, "query", base=7))

    @precondition(lambda self: self.generation)
    @rule(turn=turns, ahead=epochs, back=st.integers(min_value=0, max_value=2))
    def prepare(self, turn: int, ahead: int, back: int) -> None:
        epoch, generation = max(0, self.committed) + ahead, max(1, self.generation - back)
        if epoch <= self.floor or (epoch > self.committed + 1 and not self.prepared(epoch - 1)):
            return  # Spark runs epochs one after the other
        if any(by > generation and after < epoch for by, after in self.rolled_by):
            return  # a driver that a newer one has overtaken is fenced before Spark could commit the epoch
        part = Staged(Handle(1, {"of": generation}), generation, changes=changes_of(epoch, generation))
        created = self.journals[turn].prepare(Prepared(epoch, generation, self.offsets(epoch), {"sink": part}))

        assert created == ((epoch, generation) not in self.attempts)
        self.attempts.setdefault((epoch, generation), "prepared")

    @precondition(lambda self: self.generation > 1)
    @rule(turn=turns, ahead=epochs, back=st.integers(min_value=1, max_value=2))
    def seal(self, turn: int, ahead: int, back: int) -> None:
        epoch, generation = max(0, self.committed) + ahead, max(1, self.generation - back)
        if epoch <= self.floor:
            return
        created = self.journals[turn].seal(epoch, generation, by=self.generation)

        assert created == ((epoch, generation) not in self.attempts)
        self.attempts.setdefault((epoch, generation), "sealed")

    @precondition(lambda self: self.prepared(self.committed + 1))
    @rule()
    def spark_commits(self) -> None:
        self.committed += 1

    @rule(turn=turns)
    def an_epoch_goes_all_the_way(self, turn: int) -> None:
        if not self.generation:
            self.claim(turn)
        if not self.prepared(self.committed + 1):
            ahead = self.committed + 1 - max(0, self.committed)
            while (self.committed + 1, self.generation) in self.attempts:
                self.claim(turn)
            self.prepare(turn, ahead, back=0)
        self.spark_commits()
        while self.done < self.committed:
            self.take_the_next_step(turn)

    @rule(turn=turns)
    def take_the_next_step(self, turn: int) -> None:
        epoch = self.done + 1
        journal = self.journals[turn]
        step = next_step(journal.read(), self.committed, self.offsets(epoch))
        if step is None:
            assert epoch > self.committed
            assert epoch not in self.decided
        elif isinstance(step, Decide):
            assert step == Decide(epoch, max(self.prepared(epoch)))
            assert epoch not in self.decided
            journal.decide(epoch, step.generation)
            self.decided[epoch] = self.winners[epoch] = step.generation
        else:
            assert isinstance(step, Finish)
            assert (step.epoch, step.generation) == (epoch, self.decided[epoch])
            assert step.handles == {"sink": Handle(1, {"of": step.generation})}
            others = {g for e, g in self.attempts if e == epoch} - {step.generation}
            assert {generation for generation, _ in step.losers} == others
            journal.finish(epoch, step.generation)
            self.done = epoch

    @precondition(lambda self: self.prepared(self.done + 1))
    @rule(turn=turns, data=st.data())
    def decide_too_late_or_otherwise(self, turn: int, data: st.DataObject) -> None:
        epoch = self.done + 1
        generation = data.draw(st.sampled_from(self.prepared(epoch)))
        if epoch > self.committed and epoch not in self.decided:
            return
        self.journals[turn].decide(epoch, generation)

        self.winners[epoch] = self.decided.setdefault(epoch, generation)
        assert self.fresh().decided[epoch] == self.decided[epoch]

    @rule(turn=turns, retain=st.integers(min_value=0, max_value=2))
    def compact(self, turn: int, retain: int) -> None:
        journal = self.journals[turn]
        journal.compact(journal.read(), retain=retain, slack=0)
        self.folded(retain)

    @rule(turn=turns, retain=st.integers(min_value=0, max_value=2), data=st.data())
    def a_power_cut_ends_folding(self, turn: int, retain: int, data: st.DataObject) -> None:
        journal = self.journals[turn]
        view = journal.read()
        self.files.changes_left = data.draw(st.integers(min_value=0, max_value=8))
        try:
            journal.compact(view, retain=retain, slack=0)
        except Crash:
            pass
        if any(path.startswith("journal/s") and int(path[9:21]) > self.floor for path in self.files.content):
            self.folded(retain)
        self.power_cut(data)

    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        gone = self.files.cut(data.draw(st.integers(min_value=0, max_value=len(self.files.volatile))))
        for path in gone:
            epoch = int(path[9:21]) if path.startswith("journal/e") else self.floor
            if path.endswith(".decided.json") and epoch > self.floor:
                del self.decided[epoch], self.winners[epoch]
        done = [int(path[9:21]) for path in self.files.content if path.endswith(".done.json") and path[8] == "e"]
        self.done = max([self.floor, *done])
        self.journals = self.opened()

    def folded(self, retain: int) -> None:
        through = min(self.done - retain, max(self.decided, default=NO_EPOCH) - 1)  # rolls may follow the last one
        if through > self.floor:
            self.floor = through
            self.attempts = {key: state for key, state in self.attempts.items() if key[0] > self.floor}
            self.decided = {epoch: winner for epoch, winner in self.decided.items() if epoch > self.floor}

    @precondition(lambda self: self.done >= 0)
    @rule(turn=turns)
    def roll_between_epochs(self, turn: int) -> None:
        if self.done < self.committed or any(epoch > self.done for epoch, _ in self.attempts):
            return
        journal = self.journals[turn]
        number = self.rolled.get(self.generation, 0) + 1
        part = Staged(Handle(1, {}), 0, changes=changes_of_roll(self.done, self.rolls.get(self.done, 0)))
        record = Roll(self.generation, number, self.generation, self.done, {"sink": part})

        assert journal.roll(record)
        journal.finish_roll(record)
        self.rolled[self.generation] = number
        self.rolled_by.add((self.generation, self.done))
        self.rolls[self.done] = self.rolls.get(self.done, 0) + 1

    @rule(data=st.data())
    def a_file_of_the_state_that_is_lost_is_missed_or_not_needed(self, data: st.DataObject) -> None:
        names = [name for name in self.files.names("journal") if name.startswith("m")]
        if not names:
            return
        files = MemoryFiles()
        lost = data.draw(st.sampled_from(names))
        files.content = {path: text for path, text in self.files.content.items() if path != f"journal/{lost}"}
        found = told_or_read(files)

        assert lost in found if isinstance(found, str) else found.sink_state("sink") == self.state()

    def state(self) -> dict[str, Json]:
        """What the sink's state must be."""
        state: dict[str, Json] = {}
        for epoch in sorted({*self.winners, *self.rolls}):
            if epoch in self.winners:
                state.update(changes_of(epoch, self.winners[epoch]))
            for number in range(self.rolls.get(epoch, 0)):
                state.update(changes_of_roll(epoch, number))
        return {key: value for key, value in state.items() if value is not None}

    @precondition(lambda self: self.floor >= 0)
    @rule(turn=turns, below=st.integers(min_value=0, max_value=2))
    def a_stalled_driver_writes_below_the_floor(self, turn: int, below: int) -> None:
        epoch = max(0, self.floor - below)
        journal = self.journals[turn]
        journal.seal(epoch, 1, by=self.generation)
        journal.decide(epoch, 1)
        journal.finish(epoch, 2)

    @invariant()
    def every_reader_sees_what_the_model_says(self) -> None:
        fresh = self.fresh()
        for view in [*(journal.read() for journal in self.journals), fresh]:
            assert view.generation == self.generation
            assert view.floor == self.floor
            assert view.done_through == self.done
            assert {e: g for e, g in view.decided.items() if e > self.floor} == self.decided
            assert self.seen(view) == self.attempts
            assert view.sink_state("sink") == self.state()
        self.check_what_is_open(fresh)
        self.check_leftovers(fresh)
        self.check_rows(fresh)

    def seen(self, view: View) -> dict[tuple[int, int], str]:
        found = {}
        for epoch, by_generation in view.attempts.items():
            if epoch > self.floor:
                for generation, record in by_generation.items():
                    found[epoch, generation] = "prepared" if isinstance(record, Prepared) else "sealed"
        return found

    def check_what_is_open(self, view: View) -> None:
        beyond = {e for e, _ in self.attempts if e > self.done}

        assert set(decided_not_done(view, self.committed)) == {
            e for e in beyond if e <= self.committed or e in self.decided
        }
        prepared = {e for (e, _), state in self.attempts.items() if state == "prepared"}
        assert set(epochs_in_doubt(view, self.committed)) == {e for e in beyond & prepared if e > self.committed}

    def check_leftovers(self, view: View) -> None:
        for epoch in range(max(0, self.committed - 1), self.committed + AHEAD + 1):
            for generation in range(1, self.generation + 2):
                attempt = Attempt("query", epoch, generation)

                assert removal_of(view, attempt, newest=self.generation) is self.verdict(epoch, generation)

    def verdict(self, epoch: int, generation: int) -> Removal:
        if epoch <= self.floor:
            return Removal.REMOVE
        decided = epoch in self.decided
        if generation >= self.generation and not decided:
            return Removal.KEEP
        state = self.attempts.get((epoch, generation))
        if state is None:
            return Removal.KEEP if generation >= self.generation else Removal.SEAL_THEN_REMOVE
        if state == "sealed":
            return Removal.REMOVE
        if not decided:
            return Removal.KEEP
        undone_winner = self.decided[epoch] == generation and epoch > self.done
        return Removal.KEEP if undone_winner else Removal.REMOVE

    def check_rows(self, view: View) -> None:
        for epoch, generation in self.attempts:
            if view.state(epoch, generation) is State.PREPARED:
                assert view.prepared(epoch)[generation].sinks["sink"].rows == generation


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_a_committed_epoch_without_a_record_is_an_error() -> None:
    journal = Journal(MemoryFiles(), "journal")
    journal.claim(GenerationStarted(1, "query", base=0))

    with pytest.raises(JournalLost, match="epoch 0"):
        next_step(journal.read(), 0, "offsets")


def test_records_of_our_own_are_not_read_back_but_a_start_is() -> None:
    files = CountingFiles()
    journal = Journal(files, "journal")
    journal.claim(GenerationStarted(1, "query", base=0))
    journal.read()
    journal.prepare(Prepared(0, 1, "offsets", {"sink": Staged(Handle(1, {}), 1)}))
    journal.decide(0, 1)
    journal.finish(0, 1)
    view = journal.read()

    assert files.reads == ["journal/g000001.json"]
    assert view == Journal(files, "journal").read()


class CountingFiles(MemoryFiles):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def test_of_an_epoch_that_is_done_only_the_counts_stay_in_memory() -> None:
    journal = Journal(MemoryFiles(), "journal")
    journal.claim(GenerationStarted(1, "query", base=0))
    for epoch in range(3):
        body: dict[str, Json] = {"file": "x" * 1000}
        staged = Staged(Handle(1, body), 5, changes={f"open {epoch}": "y" * 1000}, digest="x64:0000000000000005")
        journal.prepare(Prepared(epoch, 1, "offsets", {"sink": staged}))
        journal.decide(epoch, 1)
        journal.finish(epoch, 1)
        journal.read()
    journal.decide(3, 0)  # any record: the view is made anew from what is in memory
    view = journal.read()

    assert [view.prepared(epoch)[1].sinks["sink"].changes for epoch in range(3)] == [{}, {}, {}]
    assert {view.prepared(epoch)[1].sinks["sink"].handle.version for epoch in range(3)} == {0}
    assert sorted(view.sink_state("sink")) == ["open 0", "open 1", "open 2"]
    assert view.totals(through=2).sinks["sink"][0].row_digest == RowDigest(15, "x64:000000000000000f")
    assert view.sink_state("sink") == Journal(journal._files, "journal").read().sink_state("sink")
