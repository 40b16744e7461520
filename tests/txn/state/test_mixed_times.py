"""A journal whose files are of two times, as a restore of the wrong files leaves it: a true state, or an error."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.txn.errors import JournalCorrupt, JournalLost
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.plan import Decide, Finish, next_step
from epochal.txn.records import GenerationStarted
from epochal.txn.view import View
from tests.txn.memory import Crash, MemoryFiles, VolatileFiles
from tests.txn.state.scribe import Scribe, fold, states

State = dict[str, dict[str, Json]]


class History:
    """A stream that notes its true state after each epoch and each roll."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = files or MemoryFiles()
        self.scribe = Scribe(self.files)
        self.scribe.begin()
        self.truth: dict[int, list[State]] = {-1: [{}]}

    def go(self, kinds: list[int]) -> dict[str, bytes]:
        """Take some steps, and return what is on disk then."""
        scribe = self.scribe
        for kind in kinds:
            if kind < 5:
                number = scribe.epoch + 1
                closed: dict[str, Json] = {f"key {number - 2}": None} if number >= 2 else {}
                scribe.run({"left": {f"key {number}": number, "hot": number, **closed}})
                self.truth[number] = [self.state()]
            elif scribe.epoch < 0:
                continue
            elif kind < 7:
                after = scribe.epoch
                scribe.roll({"left": {f"key {after}": None, f"rolled {len(self.truth[after])}": after}})
                self.truth[after].append(self.state())
            elif kind < 9:
                fold(self.files, Journal(self.files, "journal").read(), retain=kind - 7)
            else:
                scribe.generation, scribe.rolls = scribe.generation + 1, 0
                journal = scribe.journal()
                journal.seal_rolls(scribe.generation - 1, by=scribe.generation)
                assert journal.claim(GenerationStarted(scribe.generation, "query", base=0))
        return dict(self.files.content)

    def state(self) -> State:
        return {sink: dict(entries) for sink, entries in self.scribe.state.items() if entries}


def settled(files: MemoryFiles) -> View:
    """What a start reads once it has settled what the journal says is decided."""
    journal = Journal(files, "journal")
    view = journal.read()
    committed = max([view.done_through, *view.decided, *(roll.after for roll in view.recorded_rolls())])
    while (step := next_step(view, committed, "offsets")) is not None:
        if isinstance(step, Decide):
            journal.decide(step.epoch, step.generation)
        else:
            assert isinstance(step, Finish)
            journal.finish(step.epoch, step.generation)
        view = journal.read()
    return view


def check(history: History, content: dict[str, bytes]) -> bool:
    """Whether the files are accepted; if so, the state must have been true after the last epoch that they know."""
    files = MemoryFiles()
    files.content = dict(content)
    try:
        view = settled(files)
    except (JournalCorrupt, JournalLost):
        return False
    assert states(files) in history.truth[view.done_through]
    return True


def mixed(earlier: dict[str, bytes], later: dict[str, bytes], chance: random.Random, groups: str) -> dict[str, bytes]:
    """Each file as it was at one of two times: chosen for each, or for all of a kind."""
    chosen = {kind: chance.random() < 0.5 for kind in "ersgm"}
    mix: dict[str, bytes] = {}
    for path in sorted({*earlier, *later}):
        name = path.rpartition("/")[2]
        source = earlier if (chosen[name[0]] if name[0] in groups else chance.random() < 0.5) else later
        if path in source:
            mix[path] = source[path]
    return mix


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 9), min_size=3, max_size=30),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "m", "em", "ersg", "ersgm"]),
)
def test_files_of_two_times_give_a_true_state_or_an_error(
    before: list[int], between: list[int], chance: random.Random, groups: str
) -> None:
    history = History()
    earlier = history.go(before)
    later = history.go(between)

    assert check(history, earlier)
    assert check(history, later)
    for _ in range(4):
        check(history, mixed(earlier, later, chance, groups))


@pytest.mark.parametrize("epochs", [3, pytest.param(6, marks=pytest.mark.matrix)])
def test_a_power_cut_at_any_step_of_folding_leaves_no_mixture(epochs: int) -> None:
    """The decisions that a state record follows from are on the disk before it is."""
    stopped = 0
    for place in range(40):
        for kept in range(2 * epochs + 1):
            files = VolatileFiles()
            history = History(files)
            history.go([0] * 4 + [8] + [0] * epochs)
            files.changes_left = place
            try:
                fold(files, Journal(files, "journal").read())
                assert stopped > 4 * epochs
                return
            except Crash:
                stopped += 1
            files.cut(max(0, len(files.volatile) - kept))

            assert check(history, files.content)
    raise AssertionError("folding never ended")
