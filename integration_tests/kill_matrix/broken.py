"""Rules of the protocol broken on purpose, each in a child process of its own.

A checker that finds nothing proves something only if it finds these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from epochal.testing import DirectoryParticipant
from epochal.txn import journal, settlement
from epochal.txn.batches import BatchOutcome
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles, join
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Batch, Handle, Json, Outcome, Staged
from epochal.txn.plan import Removal
from epochal.txn.records import Decided, Record
from epochal.txn.view import View


def _show_at_stage() -> None:
    stage = DirectoryParticipant.stage

    def broken(self: DirectoryParticipant, batch: Batch[Sequence[Json]]) -> Staged:
        staged = stage(self, batch)
        self.commit(batch.attempt, staged.handle)
        return staged

    _replace(DirectoryParticipant, "stage", broken)


def _commit_before_spark() -> None:
    run = Coordinator.run

    def broken(self: Coordinator[Sequence[Json]], epoch: int, rows: Sequence[Json]) -> BatchOutcome:
        ran = run(self, epoch, rows)
        self.journal.decide(epoch, self.generation)
        self.settle()
        return ran

    _replace(Coordinator, "run", broken)


def _remove_prepared_attempts() -> None:
    """A new generation removes whatever older ones staged (against rule 5)."""

    def broken(view: View, attempt: Attempt, *, newest: int) -> Removal:
        return Removal.KEEP if attempt.generation >= newest else Removal.REMOVE

    _replace(settlement, "removal_of", broken)


def _never_abort() -> None:
    def broken(self: DirectoryParticipant, attempt: Attempt, handle: Handle | None) -> None:
        pass

    _replace(DirectoryParticipant, "abort", broken)


def _never_sweep() -> None:
    """Temporary files of dead writers stay in the journal."""
    _replace(Journal, "sweep", lambda self: [])


def _move_in_two_steps() -> None:
    """A commit that removes what was staged before it shows it."""

    def broken(self: LocalFiles, source: str, target: str) -> None:
        data = self.read(source)
        self.delete(source)
        self.create(target, data)

    _replace(LocalFiles, "rename", broken)


def _publish_under_new_names() -> None:
    """A commit that cannot tell that it is a repeat."""

    def broken(self: DirectoryParticipant, attempt: Attempt, handle: Handle) -> Outcome:
        staged = self._files.read(self._staged(attempt))
        self._files.create(f"{self._path}/{attempt.number}.{os.getpid()}", staged)
        return Outcome.COMMITTED

    _replace(DirectoryParticipant, "commit", broken)


def _decide_again() -> None:
    """The last to decide wins, not the first (against rule 3)."""
    create = Journal._create

    def broken(self: Journal, record: Record, *, durable: bool = True) -> bool:
        if isinstance(record, Decided):
            self._files.delete(join(self.path, record.name))
        return create(self, record, durable=durable)

    _replace(journal.Journal, "_create", broken)


def _no_fence() -> None:
    """A driver that was overtaken goes on, and its attempt is removed without a seal (against rule 6)."""
    _replace(Coordinator, "_check_fence_of", lambda self, view, epoch: None)
    _replace(Journal, "seal", lambda self, epoch, generation, *, by: True)
    _replace(settlement, "removal_of", lambda view, attempt, *, newest: _removal_without_seal(view, attempt, newest))


def _removal_without_seal(view: View, attempt: Attempt, newest: int) -> Removal:
    prepared = attempt.generation in view.prepared(attempt.epoch) and not view.is_over(attempt.epoch)
    return Removal.KEEP if prepared or attempt.generation >= newest else Removal.REMOVE


def _tell_before_done() -> None:
    """Readers are shown an epoch before the journal has it as done."""
    finish = Journal.finish

    def broken(self: Journal, epoch: int, generation: int) -> None:
        self.files.create(f"{self.path}-cut/{epoch:012d}.json", b"")
        finish(self, epoch, generation)

    _replace(Journal, "finish", broken)


BROKEN: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "show-at-stage": _show_at_stage,
    "commit-before-spark": _commit_before_spark,
    "remove-prepared-attempts": _remove_prepared_attempts,
    "never-abort": _never_abort,
    "never-sweep": _never_sweep,
    "move-in-two-steps": _move_in_two_steps,
    "publish-under-new-names": _publish_under_new_names,
    "decide-again": _decide_again,
    "no-fence": _no_fence,
    "tell-before-done": _tell_before_done,
}


def _replace(owner: object, name: str, value: object) -> None:
    getattr(owner, name)  # a name that is gone would break nothing
    setattr(owner, name, value)
