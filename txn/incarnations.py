"""Incarnations: a query whose user chose `new` goes on as another lineage, with a journal of its own.

The earlier journal is closed. Its decided epochs are finished, and its open rows are published. Its epochs in doubt are
never decided: the next incarnation covers every epoch from there on.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from epochal.txn import rolls
from epochal.txn.claims import new_start_id, why_held_by_copy
from epochal.txn.driver_facts import DriverFacts
from epochal.txn.errors import Refused
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, lineage_of
from epochal.txn.participant import Participant, description_of
from epochal.txn.plan import lowest_not_done
from epochal.txn.records import NO_WINNER, GenerationStarted
from epochal.txn.restoration import forked_from
from epochal.txn.settlement import Settlement, clear, remove

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")


def incarnation_path(first: str, incarnation: int) -> str:
    """The path of an incarnation's journal, by that of the first.

    >>> incarnation_path("/data/orders/epochal/", 2)
    '/data/orders/epochal~2'
    """
    return first if incarnation == 1 else f"{first.rstrip('/')}~{incarnation}"


@dataclass(frozen=True)
class Incarnations(Generic[Rows]):
    """The journals of one query: those that were closed, then the one in use."""

    journals: Callable[[int], Journal]
    query: str
    participants: Mapping[str, Participant[Rows]]
    settlement: Settlement
    start_ids: Callable[[], str] = new_start_id

    def current(self) -> tuple[int, Journal]:
        """The incarnation in use, and its journal."""
        return current_journal(self.journals)

    def closed_at(self, incarnation: int) -> int | None:
        """The first epoch that the incarnation before this one did not finish."""
        return None if incarnation == 1 else lowest_not_done(self.journals(incarnation - 1).read())

    def ancestors(self, incarnation: int) -> frozenset[str]:
        """The lineages that earlier incarnations were forked from: `new` changes nothing about it."""
        return frozenset().union(*(forked_from(self.journals(n).read()) for n in range(1, incarnation)))

    def close(self, incarnation: int, journal: Journal, record: GenerationStarted) -> None:
        """Close a journal, which fences the driver that uses it. The next incarnation has a new journal.

        What is in doubt stays staged: its driver may still write commits/N. The next incarnation
        covers every epoch from there on, so that its guard notices.
        """
        lineage = lineage_of(self.query, incarnation)
        foreign = self._is_held_elsewhere(journal, lineage)
        if not foreign:
            self.settlement.settle(journal, lineage)
        view = journal.read()
        if unowned := rolls.without_owner(view, self.participants):
            raise Refused(
                f"sink {unowned[0]!r} has open parts, but this writer does not have the sink: once the stream goes on "
                "as a new one, no driver could publish them. Nothing was written. Publish them first: `epochal roll "
                "CHECKPOINT`"
            )
        rolls.check_states(view, self.participants.values())
        number = record.generation
        if journal.claim(replace(record, adopted={}, missing={}, closed=True)) and not foreign:
            clear(
                journal,
                self.participants.values(),
                lineage,
                newest=number,
                by=number,
                scratch=self.settlement.scratch,
                reporter=self.settlement.reporter,
            )

    def leave_undecided(self, incarnation: int) -> None:
        """Record that what the closed incarnation has in doubt has no winner, before the next one begins.

        Otherwise its driver, if it still runs, would see commits/N of the next incarnation and commit the epoch, which
        would then be visible twice. Epochs decided before are finished: the next incarnation begins after them.
        """
        journal = self.journals(incarnation)
        view = journal.read()
        for epoch in view.waiting():
            if epoch not in view.decided:
                journal.decide(epoch, NO_WINNER, durable=True)
        lineage = lineage_of(self.query, incarnation)
        if not self._is_held_elsewhere(journal, lineage):
            self.settlement.settle(journal, lineage)

    def tidy(self, incarnation: int, journal: Journal, driver: DriverFacts, rows: Rows | None = None) -> None:
        """At the start of an incarnation: publish what earlier ones left open, and remove what they left staged."""
        for earlier in range(1, incarnation):
            self._publish_open(earlier, driver, rows)
        done = journal.read().done_through
        for earlier in range(1, incarnation):
            self._remove_staged(earlier, through=done)

    def _publish_open(self, incarnation: int, driver: DriverFacts, rows: Rows | None) -> None:
        """Close all open parts of a closed journal. No epoch of it can be decided any more.

        Each start that tries this claims a generation of its own in that journal, because two may try at once.
        """
        journal, lineage = self.journals(incarnation), lineage_of(self.query, incarnation)
        while not self._is_held_elsewhere(journal, lineage):
            view = journal.read()
            self.settlement.carry_out_rolls(journal, view, lineage)
            open_here = {
                name: p for name, p in self.participants.items() if p.rolls is not None and view.open_state(name)
            }
            if not open_here or view.latest is None:
                return
            number = view.generation + 1
            described = {name: description_of(p, rows) for name, p in open_here.items()}
            started = replace(
                view.latest,
                generation=number,
                start=self.start_ids(),
                sinks={**view.latest.sinks, **described},
                driver=driver,
                at=journal.now(),
            )
            if not journal.claim(started):
                continue
            view = rolls.seal_older(journal, view, by=number)
            attempt = Attempt(lineage, view.done_through, number, 1, started.start, scratch=self.settlement.scratch)
            try:
                if not rolls.close(journal, view, open_here, attempt, every=True, reporter=self.settlement.reporter):
                    return
            except FileExistsError:
                log.debug("another driver closed the open parts", extra={"incarnation": incarnation})

    def _remove_staged(self, incarnation: int, *, through: int) -> None:
        """Remove what an earlier incarnation left of epochs that this one has finished."""
        lineage = lineage_of(self.query, incarnation)
        if self._is_held_elsewhere(self.journals(incarnation), lineage):
            return
        for participant in self.participants.values():
            for attempt in participant.leftovers(lineage, self.settlement.scratch):
                if attempt.epoch <= through:
                    remove(participant, attempt, None)
                    self.settlement.reporter.aborted(attempt, participant.name)

    def _is_held_elsewhere(self, journal: Journal, lineage: str) -> bool:
        """Whether a target belongs to a copy of this journal: then we must not touch what is staged or open there."""
        holders = [participant.holder(lineage) for participant in self.participants.values()]
        view = journal.read()
        return any(why_held_by_copy(holder, view, lineage, journal.place) is not None for holder in holders)


def all_journals(journals: Callable[[int], Journal]) -> Iterator[tuple[int, Journal]]:
    """Every incarnation of a query with its journal: those that were closed, then the one in use."""
    for incarnation in itertools.count(1):
        journal = journals(incarnation)
        yield incarnation, journal
        latest = journal.read().latest
        if latest is None or not latest.closed:
            return


def current_journal(journals: Callable[[int], Journal]) -> tuple[int, Journal]:
    """The incarnation that is not closed, and its journal."""
    *_, current = all_journals(journals)
    return current
