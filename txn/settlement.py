"""Settlement: bring every decided epoch to done (rules 2 to 5 of ``docs/protocol.md``).

It needs no generation and claims nothing. Any process may settle at any time, also several at once: a driver, the next
start, `epochal recover`. It does not retry; the `settler` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from epochal.txn import failpoints
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.claims import why_not_ours
from epochal.txn.errors import CommitFailed, EpochalError, Refused
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Outcome
from epochal.txn.participant import Participant
from epochal.txn.plan import Decide, Finish, Removal, lowest_not_done, next_step, removal_of
from epochal.txn.reporting import SILENT, Reporter
from epochal.txn.view import View, handles

log = logging.getLogger("epochal")

RETAIN = 20  # done epochs whose records a compaction leaves in the journal


def fold_at_once(retain: int = RETAIN) -> Callable[[Journal, View], None] | None:
    """Fold while settling; 0 retained epochs mean never."""
    return (lambda journal, view: journal.compact(view, retain=retain)) if retain else None


class Settles(Protocol):
    """The part of a participant that settlement needs."""

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        """As in `Participant`."""

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        """As in `Participant`."""


@dataclass(frozen=True)
class Settlement:
    """Commits winners, removes losers and records DONE, for the sinks of one stream."""

    checkpoint: Checkpoint
    sinks: Mapping[str, Settles]
    check_target: Callable[
        [Journal, str, str], None
    ]  # journal, lineage, sink: raises if the target belongs to another journal
    scratch: str = ""
    fold: Callable[[Journal, View], None] | None = None  # called once an epoch is done, to fold old records away
    reporter: Reporter = SILENT

    def __repr__(self) -> str:
        return "settlement"

    def settle(self, journal: Journal, lineage: str) -> None:
        """Bring every decided epoch of a journal to done. Raises CommitFailed if a store does not answer."""
        # Read commits/ before the journal: an epoch that is in commits/ was PREPARED before, so the journal has its
        # record. Read it once: when Spark adds another, `settle` is called again.
        committed = self.checkpoint.committed()
        while True:
            view = journal.read()
            if view.latest is not None and view.latest.closed:
                committed = NO_EPOCH  # commits/ belongs to the next incarnation: decide nothing here
            self.carry_out_rolls(journal, view, lineage)
            step = next_step(view, committed, self._offsets_to_compare(view, committed))
            if step is None:
                return
            if isinstance(step, Decide):
                # Rule 3: create-if-absent. The next read shows the decision, whoever made it.
                journal.decide(step.epoch, step.generation)
            else:
                checkpointed = step.epoch <= committed
                self.reporter.decided(
                    lineage, step.epoch, step.generation, self.checkpoint.committed_at if checkpointed else None
                )
                self._finish(journal, lineage, view, step)

    def carry_out_rolls(self, journal: Journal, view: View, lineage: str) -> None:
        """Make visible what was closed between epochs, before any epoch that came after it."""
        for record in view.pending_rolls():
            if record.after > view.done_through:
                continue  # the DONE record before it was lost in a power cut: finish that epoch first
            for sink, handle in handles(record).items():
                attempt = Attempt(
                    lineage,
                    record.after,
                    record.generation,
                    record.number,
                    view.start_of(record.generation),
                    view.previous_epoch(sink, record.generation, before=record.after + 1),
                    self.scratch,
                )
                self.reporter.rolled(lineage, record, sink, self._commit(journal, sink, attempt, handle))
            journal.finish_roll(record)

    def _finish(self, journal: Journal, lineage: str, view: View, step: Finish) -> None:
        for name, handle in step.handles.items():
            after = view.previous_epoch(name, step.generation, before=step.epoch)
            start = view.start_of(step.generation)
            attempt = Attempt(lineage, step.epoch, step.generation, start=start, after=after, scratch=self.scratch)
            self.reporter.committed(attempt, name, self._commit(journal, name, attempt, handle), view)
        # Rule 5: only now is it certain that no other attempt can become the epoch.
        for generation, lost in step.losers:
            start = view.start_of(generation)
            attempt = Attempt(lineage, step.epoch, generation, start=start, scratch=self.scratch)
            for name, participant in self.sinks.items():
                self._abort(name, participant, attempt, lost.get(name))
        journal.finish(step.epoch, step.generation)
        self.reporter.done(lineage, step.epoch, step.generation, view)
        if self.fold is not None:
            self.fold(journal, view)

    def _commit(self, journal: Journal, name: str, attempt: Attempt, handle: Handle) -> Outcome:
        participant = self.sinks.get(name)
        if participant is None:
            raise Refused(
                f"epoch {attempt.epoch} is decided and waits for sink {name!r}, which this writer does not have. "
                "Add it again, or finish the epoch with `epochal recover CHECKPOINT`"
            )
        failpoints.hit("before-commit")
        self.reporter.step_begins()
        try:
            self.check_target(journal, attempt.lineage, name)
            outcome = participant.commit(attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(name, attempt.epoch, fault, "roll" if attempt.roll else "commit") from fault
        failpoints.hit("after-commit")
        return outcome

    def _abort(self, name: str, participant: Settles, attempt: Attempt, handle: Handle | None) -> None:
        try:
            remove(participant, attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(name, attempt.epoch, fault, "abort") from fault
        self.reporter.aborted(attempt, name)

    def _offsets_to_compare(self, view: View, committed: int) -> str | None:
        epoch = lowest_not_done(view)
        needed = epoch <= committed and epoch not in view.decided
        return self.checkpoint.offsets(epoch) if needed else None


def remove(participant: Settles, attempt: Attempt, handle: Handle | None) -> None:
    """Abort one attempt in one sink."""
    failpoints.hit("before-abort")
    participant.abort(attempt, handle)
    failpoints.hit("after-abort")


def clear(
    journal: Journal,
    participants: Iterable[Participant[Any]],
    lineage: str,
    *,
    newest: int,
    by: int,
    unused: int = 0,
    scratch: str = "",
    reporter: Reporter = SILENT,
    epoch: int | None = None,
) -> list[Attempt]:
    """Remove the staged data that the rules allow; seal before delete (rules 5 and 6). Returns what was removed.

    `unused` is a generation that has staged nothing yet: staged data with its number, and without the id of a start,
    is of an older version whose journal was lost. With `epoch`, only the attempts at that epoch are removed.
    """
    removed = []
    for participant in participants:
        holder = participant.holder(lineage)
        if (why := why_not_ours(holder, journal.read(), lineage, journal.place)) is not None:
            log.warning(
                "staged data was not removed, because the target of sink %r does not belong to this journal: %s",
                participant.name,
                why,
                extra={"sink": participant.name, "reason": why},
            )
            continue
        for attempt in participant.leftovers(lineage, scratch):
            if epoch is not None and (attempt.epoch != epoch or attempt.roll):
                continue
            if attempt.generation == unused and not attempt.start:
                remove(participant, attempt, None)
                removed.append(attempt)
                reporter.aborted(attempt, participant.name)
                continue
            verdict = removal_of(journal.read(), attempt, newest=newest)
            if verdict is Removal.SEAL_THEN_REMOVE:
                if attempt.roll:
                    journal.seal_rolls(attempt.generation, by=by)
                else:
                    journal.seal(attempt.epoch, attempt.generation, by=by)
                # Only one of seal and record gets the name: read the journal to see which.
                verdict = removal_of(journal.read(), attempt, newest=newest)
            if verdict is Removal.REMOVE:
                remove(participant, attempt, None)
                removed.append(attempt)
                reporter.aborted(attempt, participant.name)
    return removed
