"""Settlement: every decided epoch is brought to done (rules 2 to 5 of ``docs/protocol.md``).

It starts nothing and needs no generation. Anybody may settle what is decided, at any time, several at once: a driver,
the next start, `epochal recover`. It has no patience: what waits and retries is the `settler`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from epochal.txn import failpoints
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.errors import CommitFailed, EpochalError, Refused
from epochal.txn.holding import stranger
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Outcome
from epochal.txn.participant import Participant
from epochal.txn.plan import Decide, Finish, Sweep, lowest_open, next_step, sweep
from epochal.txn.view import View, handles

log = logging.getLogger("epochal")

RETAIN = 20  # epochs whose records stay in a journal when it is compacted


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
    check_target: Callable[[Journal, str, str], None]  # journal, lineage, sink: raises if the target is another's
    scratch: str = ""
    retain: int = RETAIN

    def __repr__(self) -> str:
        return "settlement"

    def settle(self, journal: Journal, lineage: str) -> None:
        """Bring every decided epoch of a journal to done. Raises CommitFailed if a store is away."""
        # commits/ first: whatever it shows was PREPARED before, so the journal read after it has the record. And once:
        # what Spark adds meanwhile wakes us again.
        committed = self.checkpoint.committed()
        while True:
            view = journal.read()
            if view.latest is not None and view.latest.closed:
                committed = NO_EPOCH  # of another incarnation, which answers for all that is not decided here
            self.carry_out_rolls(journal, view, lineage)
            step = next_step(view, committed, self._offsets_of_open(view, committed))
            if step is None:
                return
            if isinstance(step, Decide):
                # Rule 3: create-if-absent. Whoever was first, the next read shows it.
                journal.decide(step.epoch, step.generation)
            else:
                self._finish(journal, lineage, view, step)

    def carry_out_rolls(self, journal: Journal, view: View, lineage: str) -> None:
        """Show what was closed between epochs, before any epoch that came after it."""
        for record in view.to_carry_out():
            if record.after > view.done_through:
                continue  # a power cut has taken DONE of the epoch before it, which comes first
            for sink, handle in handles(record).items():
                attempt = Attempt(
                    lineage,
                    record.after,
                    record.generation,
                    record.number,
                    view.start_of(record.generation),
                    view.given(sink, record.generation, before=record.after + 1),
                    self.scratch,
                )
                self._commit(journal, sink, attempt, handle)
            journal.finish_roll(record)

    def _finish(self, journal: Journal, lineage: str, view: View, step: Finish) -> None:
        for name, handle in step.handles.items():
            after = view.given(name, step.generation, before=step.epoch)
            start = view.start_of(step.generation)
            attempt = Attempt(lineage, step.epoch, step.generation, start=start, after=after, scratch=self.scratch)
            self._commit(journal, name, attempt, handle)
        # Rule 5: only now is it certain that no other attempt can become the epoch.
        for generation, lost in step.losers:
            start = view.start_of(generation)
            attempt = Attempt(lineage, step.epoch, generation, start=start, scratch=self.scratch)
            for name, participant in self.sinks.items():
                self._abort(name, participant, attempt, lost.get(name))
        journal.finish(step.epoch, step.generation)
        if self.retain:
            journal.compact(view, retain=self.retain)

    def _commit(self, journal: Journal, name: str, attempt: Attempt, handle: Handle) -> None:
        participant = self.sinks.get(name)
        if participant is None:
            raise Refused(
                f"epoch {attempt.epoch} is decided and waits for sink {name!r}, which this writer does not have. "
                "Add it again, or finish the epoch with `epochal recover CHECKPOINT`"
            )
        failpoints.hit("before-commit")
        try:
            self.check_target(journal, attempt.lineage, name)
            outcome = participant.commit(attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(name, attempt.epoch, fault) from fault
        failpoints.hit("after-commit")
        log.info("epoch committed", extra={"epoch": attempt.epoch, "sink": name, "outcome": outcome.value})

    def _abort(self, name: str, participant: Settles, attempt: Attempt, handle: Handle | None) -> None:
        try:
            remove(participant, attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(name, attempt.epoch, fault) from fault

    def _offsets_of_open(self, view: View, committed: int) -> str | None:
        epoch = lowest_open(view)
        wanted = epoch <= committed and epoch not in view.decided
        return self.checkpoint.offsets(epoch) if wanted else None


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
) -> list[Attempt]:
    """Remove the staged data that the rules allow; seal before delete (rules 5 and 6). Returns what was removed.

    `unused` is a generation that has staged nothing yet: what bears its number, without the name of a start, was
    staged by an older version whose journal was lost.
    """
    removed = []
    for participant in participants:
        holder = participant.holder(lineage)
        if (why := stranger(holder, journal.read(), lineage, journal.place)) is not None:
            log.warning("staged data left alone, sink %r is not this journal's: %s", participant.name, why)
            continue
        for attempt in participant.leftovers(lineage, scratch):
            if attempt.generation == unused and not attempt.start:
                remove(participant, attempt, None)
                removed.append(attempt)
                continue
            verdict = sweep(journal.read(), attempt, newest=newest)
            if verdict is Sweep.SEAL_THEN_REMOVE:
                if attempt.roll:
                    journal.seal_rolls(attempt.generation, by=by)
                else:
                    journal.seal(attempt.epoch, attempt.generation, by=by)
                # Whoever was first has the name: look again instead of trusting the answer.
                verdict = sweep(journal.read(), attempt, newest=newest)
            if verdict is Sweep.REMOVE:
                remove(participant, attempt, None)
                removed.append(attempt)
    return removed
