"""The coordinator of one query: one generation on one lineage, from its start to its last epoch.

It has four parts, each a module: the start (`start`, `incarnations`), one batch (`batches`), settlement
(`settlement`), and what is closed between epochs (`rolls`). It is synchronous and has no threads, no clock and no
patience: what waits and retries is the `settler`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from epochal.txn import failpoints, rolls
from epochal.txn.batches import Batches, BatchOutcome
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.errors import Refused
from epochal.txn.guard import Choices
from epochal.txn.holding import check_holder, copied, displaced, new_start, two_journals
from epochal.txn.incarnations import Incarnations, current_journal
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, lineage_of
from epochal.txn.participant import Participant
from epochal.txn.plan import held
from epochal.txn.reaching import reaching
from epochal.txn.settlement import RETAIN, Settlement, clear
from epochal.txn.start import JOURNAL_ADVICE, Generation, Start, driver, superseded
from epochal.txn.view import View

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")


class Coordinator(Generic[Rows]):
    """Drives the participants of one query through its epochs."""

    def __init__(
        self,
        *,
        journals: Callable[[int], Journal],
        checkpoint: Checkpoint,
        participants: Sequence[Participant[Rows]],
        eager: bool = False,
        choices: Choices | None = None,
        retain: int = RETAIN,
        version: str = "",
        scratch: str = "",
        names: Callable[[], str] = new_start,  # of starts
    ) -> None:
        self.eager = eager
        self._checkpoint = checkpoint
        self._participants: Mapping[str, Participant[Rows]] = {p.name: p for p in participants}
        self._version, self._scratch = version, scratch
        with reaching("the journal", JOURNAL_ADVICE):
            self._incarnation, self._journal = current_journal(journals)
        self._query = checkpoint.query_id()
        self._settlement = Settlement(checkpoint, self._participants, self._check_bound, scratch, retain)
        self._incarnations = Incarnations(journals, self._query, self._participants, self._settlement, names)
        self._starts = Start(
            checkpoint, self._participants, self._incarnations, self._query, eager, choices or Choices(), version, names
        )
        self._generation: Generation | None = None
        self._epoch = NO_EPOCH  # of the last batch

    @property
    def lineage(self) -> str:
        return lineage_of(self._query, self._incarnation)

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def generation(self) -> int:
        """The number of this start; 0 before `begin`."""
        return 0 if self._generation is None else self._generation.number

    def check(self) -> None:
        """Refuse what `begin` would refuse, before Spark plans an epoch. Writes nothing, and binds nobody."""
        self._starts.check()

    def begin(self) -> None:
        """Check the lineage, claim a generation and clear what dead generations left."""
        failpoints.check_names()
        generation = self._generation = self._starts.claim()
        self._incarnation, self._journal = generation.incarnation, generation.journal
        self._journal.sweep()
        view = rolls.seal_older(self._journal, generation.before, by=generation.number)
        for name in rolls.without_owner(view, self._participants):
            log.warning("sink %r has parts open and is not in this writer: publish them by `epochal roll`", name)
        _warn_of_changes(generation)
        self.clear()
        self._incarnations.tidy(self._incarnation, self._journal, driver(self._version))
        log.info("generation started", extra={"lineage": self.lineage, "generation": self.generation})

    def run(self, epoch: int, rows: Rows) -> BatchOutcome:
        """Stage an epoch and record PREPARED (rule 1). All epochs before it must be settled or held."""
        self._epoch = epoch
        batches = Batches(
            self._begun, self._checkpoint, self._participants, self.eager, self._scratch, self._check_fence_of
        )
        return batches.run(epoch, rows)

    def settle(self) -> None:
        """Bring every decided epoch to done (rules 2 to 4). Raises CommitFailed if a store is away."""
        self._settlement.settle(self._journal, self.lineage)

    def is_settled_below(self, epoch: int) -> bool:
        """Whether all earlier epochs were seen done, and no roll is left to be shown. Asks nobody: False if unsure."""
        view = self._journal.view
        return view.done_through >= epoch - 1 and not view.to_carry_out()

    def pending_below(self, epoch: int) -> int:
        """How many earlier epochs are decided and not done."""
        view = self._journal.read()
        return sum(1 for e in held(view, self._checkpoint.committed()) if e < epoch)

    def keeps_open(self) -> bool:
        """Whether a sink keeps something open over epochs: the next is then staged when the last is done."""
        generation = self._generation
        if generation is None:
            return False
        return generation.before.may_roll or any(sink.keeps_open for sink in generation.record.sinks.values())

    def due(self) -> float | None:
        """When a sink wants to close something, in seconds of the wall clock."""
        return rolls.due(self._journal.read(), self._participants.values())

    def roll(self, *, every: bool = False) -> bool:
        """Between two epochs: close what is due, or all that is open. False if there is nothing, or not now.

        A roll changes what the next epoch starts from, so it must not come between an attempt and its end. Our own
        attempts are over; an older generation that had prepared one before we claimed ours is seen here; and whoever
        prepares one later finds itself fenced before Spark can write commits/N.
        """
        view = self._journal.read()
        self.check_fence(view)
        number = view.next_roll(self.generation)
        if number is None:
            raise superseded(self.generation, "its rolls were sealed", self._epoch)
        if self._checkpoint.committed() > view.done_through or any(view.prepared(e) for e in view.waiting()):
            return False
        start = view.start_of(self.generation)
        attempt = Attempt(self.lineage, view.done_through, self.generation, number, start, scratch=self._scratch)
        try:
            recorded = rolls.close(self._journal, view, self._participants, attempt, every=every)
        except FileExistsError:
            raise superseded(self.generation, "its roll was sealed", self._epoch) from None
        view = self._journal.read()
        self._settlement.carry_out_rolls(self._journal, view, self.lineage)
        self.check_fence(view)  # one that slept through the purge of its seal has recorded what counts for nothing
        return recorded is not None

    def check_fence(self, view: View) -> None:
        """Stop if a newer generation has started, or the journal was closed (rule 4 of the promise)."""
        self._check_fence_of(view, self._epoch)

    def clear(self) -> list[Attempt]:
        """At a start: remove what the rules allow of older attempts (rules 5 and 6). Returns what was removed."""
        return clear(
            self._journal,
            self._participants.values(),
            self.lineage,
            newest=self.generation,
            by=self.generation,
            unused=self.generation,
            scratch=self._scratch,
        )

    @property
    def _begun(self) -> Generation:
        if self._generation is None:
            raise Refused("this coordinator has not begun: it has no generation to write under")
        return self._generation

    def _check_fence_of(self, view: View, epoch: int) -> None:
        if (why := self._begun.fault(view)) is not None:
            raise superseded(self.generation, why, epoch)

    def _check_bound(self, journal: Journal, lineage: str, name: str) -> None:
        """Stop if a target is not this journal's any more."""
        holder = self._participants[name].holder(lineage)
        if not (self.generation and lineage == self.lineage):
            # What an earlier incarnation has decided is finished, though another stream may have taken its place.
            if (why := copied(holder, journal.read(), lineage, journal.place)) is not None:
                raise two_journals(name, why)
        # The view that was read last will nearly always do; else a newer start of our own has claimed it since.
        elif holder is None or displaced(holder, journal.view, lineage, journal.place) is not None:
            check_holder(name, holder, journal.read(), lineage, journal.place)


def _warn_of_changes(generation: Generation) -> None:
    """Since the start before: both are allowed, and both leave a target without what comes."""
    latest = generation.before.latest
    if latest is None:
        return
    for name in latest.sinks.keys() - generation.record.sinks.keys():
        log.warning("sink %r of the start before is not in this writer: it misses what is written from now on", name)
    for name, sink in generation.record.sinks.items():
        before = latest.sinks.get(name)
        if before is not None and before.target != sink.target:
            log.warning(
                "sink %r writes to %s from now on: what was written stays in %s", name, sink.target, before.target
            )
