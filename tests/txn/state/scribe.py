"""A journal of a stream whose sinks keep state, written without drivers, and the state that it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from epochal.txn.files import Files
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import GenerationStarted, Prepared, Roll
from epochal.txn.state.folding import Folding
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.state.policy import Knobs, Policy
from epochal.txn.view import View
from tests.txn.memory import MemoryFiles

MERGING = Knobs(dirty_ratio=0.3)


class WatchedFiles(MemoryFiles):
    """Calls back before each change of the disk."""

    def __init__(self, content: dict[str, bytes], before: Callable[[str], None]) -> None:
        super().__init__()
        self.content = content
        self.before = before

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self.before(path)
        return super().create(path, data, durable=durable)

    def delete(self, path: str) -> None:
        self.before(path)
        super().delete(path)


@dataclass
class Scribe:
    """Writes epochs and rolls, and knows the state after each."""

    files: Files
    path: str = "journal"
    epoch: int = -1
    rolls: int = 0
    state: dict[str, dict[str, Json]] = field(default_factory=dict)
    generation: int = 1

    def begin(self) -> Journal:
        journal = self.journal()
        journal.claim(GenerationStarted(self.generation, "query", base=0))
        return journal

    def journal(self) -> Journal:
        return Journal(self.files, self.path, clock=lambda: 0.0, policy=Policy(knobs=MERGING))

    def run(self, *epochs: dict[str, dict[str, Json]], done: bool = True) -> None:
        """Run epochs that change the states of sinks so."""
        journal = self.journal()
        for changes in epochs:
            self.epoch += 1
            sinks = {sink: Staged(Handle(1, {}), 1, changes=change) for sink, change in changes.items()}
            rolls = self._rolls_after(self.epoch - 1)
            journal.prepare(Prepared(self.epoch, self.generation, "offsets", sinks, rolls=rolls))
            journal.decide(self.epoch, self.generation)
            if done:
                journal.finish(self.epoch, self.generation)
            self._apply(changes)

    def roll(self, changes: dict[str, dict[str, Json]]) -> None:
        """Change states between two epochs."""
        self.rolls += 1
        sinks = {sink: Staged(Handle(1, {}), 0, changes=change) for sink, change in changes.items()}
        journal, earlier = self.journal(), self._rolls_after(self.epoch)
        record = Roll(self.generation, self.rolls, self.generation, self.epoch, sinks, rolls=earlier)
        assert journal.roll(record)
        journal.finish_roll(record)
        self._apply(changes)

    def _rolls_after(self, epoch: int) -> int:
        return Journal(self.files, self.path, with_states=False).read().rolls_after(epoch)

    def _apply(self, changes: dict[str, dict[str, Json]]) -> None:
        for sink, change in changes.items():
            after = {**self.state.get(sink, {}), **change}
            self.state[sink] = {key: value for key, value in after.items() if value is not None}


def fold(files: Files, view: View, *, retain: int = 1, knobs: Knobs = MERGING, clock: float = 0.0) -> None:
    """One round of folding by a process that has read this view."""
    reader = Journal(files, "journal", with_states=False)
    folding = Folding(files, "journal", lambda: "", knobs, lambda: clock)
    folding.fold(FoldingPlan.of(view, retain=retain), reader.read)


def states(files: Files) -> dict[str, dict[str, Json]]:
    """The states that a new process reads."""
    view = Journal(files, "journal").read()
    return {sink: dict(state) for sink, state in view.sink_states().items()}
