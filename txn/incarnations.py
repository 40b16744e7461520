"""Incarnations: a query whose user chose `new` goes on as another lineage, with a journal of its own.

The journal before it is closed. What it has decided is finished, what it has open is shown, and what it has in doubt
stays undecided for ever: the next incarnation answers for every epoch from there on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from epochal.txn import rolls
from epochal.txn.errors import Refused
from epochal.txn.holding import copied, new_start
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Json, lineage_of
from epochal.txn.participant import Participant, description_of
from epochal.txn.plan import lowest_open
from epochal.txn.records import NOBODY, GenerationStarted
from epochal.txn.settlement import Settlement, clear, remove

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Incarnations(Generic[Rows]):
    """The journals of one query: those that were closed, then the one in use."""

    journals: Callable[[int], Journal]
    query: str
    participants: Mapping[str, Participant[Rows]]
    settlement: Settlement
    names: Callable[[], str] = new_start

    def current(self) -> tuple[int, Journal]:
        """The incarnation in use, and its journal."""
        return current_journal(self.journals)

    def closed_at(self, incarnation: int) -> int | None:
        """The first epoch that the incarnation before this one left open."""
        return None if incarnation == 1 else lowest_open(self.journals(incarnation - 1).read())

    def close(self, incarnation: int, journal: Journal, record: GenerationStarted) -> None:
        """Close a journal, which fences whoever uses it. The next one is another incarnation's.

        What is in doubt stays: its driver may still write commits/N, and the next incarnation
        answers for every epoch from there on, so that this cannot pass unseen.
        """
        lineage = lineage_of(self.query, incarnation)
        foreign = self._is_held_elsewhere(journal, lineage)
        if not foreign:
            self.settlement.settle(journal, lineage)
        view = journal.read()
        if stays := rolls.without_owner(view, self.participants):
            raise Refused(
                f"sink {stays[0]!r} has parts open, which nobody could publish once this stream goes on as a new one, "
                "because this writer does not have the sink. Nothing was written. Publish them first: `epochal roll "
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
            )

    def leave(self, incarnation: int) -> None:
        """Before the next incarnation has its first generation: what the closed one has in doubt stays undecided.

        Otherwise its driver, which may not know yet, would find commits/N of the next one and show the epoch twice.
        What somebody has decided before is finished: the next incarnation begins after it.
        """
        journal = self.journals(incarnation)
        view = journal.read()
        for epoch in view.waiting():
            if epoch not in view.decided:
                journal.decide(epoch, NOBODY, durable=True)
        lineage = lineage_of(self.query, incarnation)
        if not self._is_held_elsewhere(journal, lineage):
            self.settlement.settle(journal, lineage)

    def tidy(self, incarnation: int, journal: Journal, driver: Mapping[str, Json]) -> None:
        """At the start of an incarnation: show what earlier ones left open, and remove what they left staged."""
        for earlier in range(1, incarnation):
            self._show_open(earlier, driver)
        done = journal.read().done_through
        for earlier in range(1, incarnation):
            self._remove_staged(earlier, through=done)

    def _show_open(self, incarnation: int, driver: Mapping[str, Json]) -> None:
        """Close all that a closed journal has open. Nothing of it can be decided any more.

        Each start that tries it takes a generation of its own there, because two may try it at once.
        """
        journal, lineage = self.journals(incarnation), lineage_of(self.query, incarnation)
        while not self._is_held_elsewhere(journal, lineage):
            view = journal.read()
            self.settlement.carry_out_rolls(journal, view, lineage)
            open_here = {
                name: p for name, p in self.participants.items() if p.rolls is not None and view.sink_state(name)
            }
            if not open_here or view.latest is None:
                return
            number = view.generation + 1
            described = {name: description_of(p) for name, p in open_here.items()}
            started = replace(
                view.latest,
                generation=number,
                start=self.names(),
                sinks={**view.latest.sinks, **described},
                driver=driver,
                at=journal.now(),
            )
            if not journal.claim(started):
                continue
            view = rolls.seal_older(journal, view, by=number)
            attempt = Attempt(lineage, view.done_through, number, 1, started.start, scratch=self.settlement.scratch)
            try:
                if not rolls.close(journal, view, open_here, attempt, every=True):
                    return
            except FileExistsError:
                log.debug("another driver closes what incarnation %s left open", incarnation)

    def _remove_staged(self, incarnation: int, *, through: int) -> None:
        """Remove what an earlier incarnation left of epochs that this one has finished."""
        lineage = lineage_of(self.query, incarnation)
        if self._is_held_elsewhere(self.journals(incarnation), lineage):
            return
        for participant in self.participants.values():
            for attempt in participant.leftovers(lineage, self.settlement.scratch):
                if attempt.epoch <= through:
                    remove(participant, attempt, None)

    def _is_held_elsewhere(self, journal: Journal, lineage: str) -> bool:
        """Whether another copy of a journal has a target: what it has staged and opened is not ours to touch."""
        holders = [participant.holder(lineage) for participant in self.participants.values()]
        view = journal.read()
        return any(copied(holder, view, lineage, journal.place) is not None for holder in holders)


def current_journal(journals: Callable[[int], Journal]) -> tuple[int, Journal]:
    """The incarnation that is not closed, and its journal."""
    incarnation = 1
    while True:
        journal = journals(incarnation)
        latest = journal.read().latest
        if latest is None or not latest.closed:
            return incarnation, journal
        incarnation += 1
