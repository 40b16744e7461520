"""The coordinator of one query: one generation on one lineage, from its start to its last epoch.

It has four parts, each a module: the start (`start`, `incarnations`), one batch (`batches`), settlement
(`settlement`), and what is closed between epochs (`rolls`). It is synchronous: no threads, no clock, no retries. The
`settler` waits and retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from epochal.txn import failpoints, rolls
from epochal.txn.access import refuse_unreachable
from epochal.txn.batches import Batches, BatchOutcome
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.choices import Choices
from epochal.txn.claims import check_holder, new_start_id, two_journals, why_claim_lost, why_held_by_copy
from epochal.txn.driver_facts import this_driver
from epochal.txn.errors import EpochalError, Refused
from epochal.txn.events import Observer
from epochal.txn.incarnations import Incarnations, current_journal
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, lineage_of, lineage_tag
from epochal.txn.participant import Participant
from epochal.txn.plan import decided_not_done
from epochal.txn.reporting import reporter
from epochal.txn.settlement import RETAIN, Settlement, clear
from epochal.txn.start import JOURNAL_ADVICE, STOPS, Generation, Start, superseded
from epochal.txn.state.background import BackgroundFolding
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
        start_ids: Callable[[], str] = new_start_id,
        observers: Iterable[Observer] = (),
        stream: str = "",
    ) -> None:
        self.eager = eager
        self._checkpoint = checkpoint
        self._participants: Mapping[str, Participant[Rows]] = {p.name: p for p in participants}
        self._version, self._scratch = version, scratch
        with refuse_unreachable("the journal", JOURNAL_ADVICE):
            self._incarnation, self._journal = current_journal(journals)
        self._query = checkpoint.query_id()
        self.reporter = reporter(observers, stream=stream or lineage_tag(self.lineage))
        self._retain = retain
        self.folding: BackgroundFolding | None = None  # without it, old records are folded away while settling
        self._settlement = Settlement(
            checkpoint, self._participants, self._check_bound, scratch, self._fold if retain else None, self.reporter
        )
        self._incarnations = Incarnations(journals, self._query, self._participants, self._settlement, start_ids)
        self._starts = Start(
            checkpoint,
            self._participants,
            self._incarnations,
            self._query,
            eager,
            choices or Choices(),
            version,
            start_ids,
        )
        self._generation: Generation | None = None
        self._epoch = NO_EPOCH  # of the last batch
        self._may_roll = False  # by what the journal said when this start claimed its generation
        self._recorded: set[int] = set()  # the last epoch that this driver has prepared

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
        """Refuse what `begin` would refuse, before Spark plans an epoch. Writes nothing and claims nothing."""
        self._starts.check()

    def begin(self, rows: Rows | None = None, *, instead_of: str | None = None) -> None:
        """Check the lineage, claim a generation and remove what dead generations left.

        `rows` is a frame with the columns that this start will write, for the participants that record them.
        With `instead_of`, the id of a start: Overtaken unless that one is still the newest.
        """
        try:
            self._begin(rows, instead_of)
        except EpochalError as fault:
            self.reporter.refused(self.lineage, fault, None)
            raise

    def _begin(self, rows: Rows | None, instead_of: str | None) -> None:
        failpoints.check_names()
        generation = self._generation = self._starts.claim(rows, instead_of=instead_of)
        self._incarnation, self._journal = generation.incarnation, generation.journal
        self._journal.sweep()
        view = rolls.seal_older(self._journal, generation.before, by=generation.number)
        for name in rolls.without_owner(view, self._participants):
            log.warning(
                "sink %r has open parts but is not in this writer; `epochal roll CHECKPOINT` publishes them",
                name,
                extra={"sink": name},
            )
        _warn_of_changes(generation)
        self.clear()
        self._incarnations.tidy(self._incarnation, self._journal, this_driver(self._version), rows)
        self.reporter.started(self.lineage, self.generation, self._participants, generation.before)
        self._may_roll = generation.before.may_roll
        # Versions of states that somebody holds keep every later change in memory.
        self._generation = replace(generation, before=generation.before.without_states())

    def run(self, epoch: int, rows: Rows) -> BatchOutcome:
        """Stage an epoch and record PREPARED (rule 1). All epochs before it must be done, or decided and pending."""
        self._epoch = epoch
        batches = Batches(
            self.begun,
            self._checkpoint,
            self._participants,
            self.eager,
            self._scratch,
            self._check_fence_of,
            self._recorded,
            self.reporter,
        )
        return batches.run(epoch, rows)

    def settle(self) -> None:
        """Bring every decided epoch to done (rules 2 to 4). Raises CommitFailed if a store does not answer."""
        self._settlement.settle(self._journal, self.lineage)
        self.reporter.opened(self.lineage, self._journal.view, self._participants.values())

    def _fold(self, journal: Journal, view: View) -> None:
        """Fold old records away, or let the background do it."""
        folding = self.folding
        if folding is None:
            journal.compact(view, retain=self._retain)
        elif (plan := journal.plan(view, retain=self._retain, affords=folding.affords)) is not None:
            folding.offer(journal, plan)

    def is_settled_below(self, epoch: int) -> bool:
        """Whether all earlier epochs are done and no roll is pending, as of the last read. False if not known."""
        view = self._journal.view
        return view.done_through >= epoch - 1 and not view.pending_rolls()

    def pending_below(self, epoch: int) -> int:
        """How many earlier epochs are decided and not done."""
        view = self._journal.read()
        return sum(1 for e in decided_not_done(view, self._checkpoint.committed()) if e < epoch)

    def keeps_open(self) -> bool:
        """Whether a sink may hold rows open over epochs: then an epoch is staged only when the last one is done."""
        generation = self._generation
        if generation is None:
            return False
        return self._may_roll or any(sink.keeps_open for sink in generation.record.sinks.values())

    def due(self) -> float | None:
        """When the next open part is due to be closed, in seconds of the wall clock; None for never."""
        return rolls.due(self._journal.read(), self._participants.values())

    def roll(self, *, every: bool = False) -> bool:
        """Between two epochs: close what is due, or all that is open. False if there is nothing to close, or not now.

        A roll changes what the next epoch starts from, so there must be no prepared attempt that is not done. Our own
        attempts are done. An attempt that an older generation prepared before we claimed ours is visible here. A driver
        that prepares one later is fenced before Spark can write commits/N.
        """
        view = self._journal.read()
        self.check_fence(view)
        number = view.next_roll(self.generation)
        if number is None:
            raise superseded(self.generation, f"its rolls were sealed. {STOPS}", self._epoch)
        if self._checkpoint.committed() > view.done_through or any(view.prepared(e) for e in view.waiting()):
            return False
        start = view.start_of(self.generation)
        attempt = Attempt(self.lineage, view.done_through, self.generation, number, start, scratch=self._scratch)
        try:
            recorded = rolls.close(
                self._journal, view, self._participants, attempt, every=every, reporter=self.reporter
            )
        except FileExistsError:
            raise superseded(self.generation, f"its roll was sealed. {STOPS}", self._epoch) from None
        view = self._journal.read()
        self._settlement.carry_out_rolls(self._journal, view, self.lineage)
        self.check_fence(view)  # if our seal was made and purged while we stalled, the roll does not count
        self.reporter.opened(self.lineage, view, self._participants.values())
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
            reporter=self.reporter,
        )

    @property
    def begun(self) -> Generation:
        """The generation of this start; Refused before `begin`."""
        if self._generation is None:
            raise Refused("this coordinator has not begun: it has no generation yet")
        return self._generation

    def _check_fence_of(self, view: View, epoch: int) -> None:
        if (why := self.begun.why_superseded(view)) is not None:
            raise superseded(self.generation, why, epoch)

    def _check_bound(self, journal: Journal, lineage: str, name: str) -> None:
        """Stop if a target no longer belongs to this journal."""
        holder = self._participants[name].holder(lineage)
        if not (self.generation and lineage == self.lineage):
            # What an earlier incarnation decided is finished even if another stream has replaced it.
            if (why := why_held_by_copy(holder, journal.read(), lineage, journal.place)) is not None:
                raise two_journals(name, why)
        # The last view is nearly always new enough; if not, a newer start of this stream may have claimed the target.
        elif holder is None or why_claim_lost(holder, journal.view, lineage, journal.place) is not None:
            check_holder(name, holder, journal.read(), lineage, journal.place)


def _warn_of_changes(generation: Generation) -> None:
    """Warn of a sink that was dropped or moved since the last start: its old target gets no more epochs."""
    latest = generation.before.latest
    if latest is None:
        return
    for name in latest.sinks.keys() - generation.record.sinks.keys():
        log.warning(
            "sink %r of the previous start is not in this writer: it gets none of the following epochs",
            name,
            extra={"sink": name},
        )
    for name, sink in generation.record.sinks.items():
        before = latest.sinks.get(name)
        if before is not None and before.target != sink.target:
            log.warning(
                "the target of sink %r was changed to %s; earlier epochs remain in %s",
                name,
                sink.target,
                before.target,
                extra={"sink": name, "target": sink.target, "previous": before.target},
            )
