"""Settling and removing leftovers without a driver: the base of `epochal recover`, `gc` and `roll`.

Settling and removing claim no generation, so a running driver is not disturbed: any process may finish
what is decided, at any time. `fence` and `roll_all` claim one, which stops the driver.

Sinks are rebuilt from the descriptions in the generations' records. A path may have been changed
between two starts, so each attempt goes to the sink that its own generation staged it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from epochal.txn import rolls
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.choices import Choices
from epochal.txn.claims import new_start_id, why_held_by_copy, why_not_ours
from epochal.txn.driver_facts import this_command
from epochal.txn.errors import CommitFailed, EpochalError, FencedOut, Refused, TwoJournals
from epochal.txn.guard import Observed, check_start
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Description, Handle, Json, Memory, OpenRows, Outcome, lineage_of
from epochal.txn.participant import Participant
from epochal.txn.plan import Removal, decided_not_done, removal_of
from epochal.txn.reporting import SILENT, Reporter
from epochal.txn.rescaling import refuse_unfinished
from epochal.txn.retirement import refuse_retired
from epochal.txn.settlement import Settlement, clear, fold_at_once
from epochal.txn.start import claim_of
from epochal.txn.states import State
from epochal.txn.view import View

Build: TypeAlias = Callable[[Mapping[str, Json]], Participant[Any]]
OnCommit: TypeAlias = Callable[[Attempt, str, Outcome], None]


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """A sink and its target: the same name with another target is another place."""

    sink: str
    kind: str
    target: str


class Sinks:
    """Every sink that the generations of a journal describe, each built on first use."""

    def __init__(self, view: View, build: Build, *, scratch: str = "") -> None:
        self.scratch = scratch
        self._build = build
        self._built: dict[SinkPlace, Participant[Any]] = {}
        self._stagings: dict[SinkPlace, dict[str | None, Description]] = {}  # by the folder that each stages in
        self._descriptions: dict[SinkPlace, Description] = {}
        self._by_generation: dict[int, dict[str, SinkPlace]] = {}
        self.add_generations(view)

    def add_generations(self, view: View) -> None:
        """Add the sinks of all generations of a view."""
        for number, record in sorted(view.generations.items()):
            self._by_generation[number] = {}
            for name, description in record.sinks.items():
                place = _place(name, description)
                self._by_generation[number][name] = place
                # The newest description of a place wins: a host may have another name, but the rows are the same.
                self._descriptions[place] = description
                staging = description.settings.get("staging")
                self._stagings.setdefault(place, {})[staging if isinstance(staging, str) else None] = description

    def places(self) -> list[SinkPlace]:
        """Every place, those of the newest generations first."""
        newest_first = sorted(self._by_generation, reverse=True)
        return list(dict.fromkeys(p for g in newest_first for p in self._by_generation[g].values()))

    def names(self) -> list[str]:
        """Every sink, those of the oldest generations first."""
        return list(dict.fromkeys(place.sink for place in reversed(self.places())))

    def current(self) -> dict[str, SinkPlace]:
        """The places of the newest generation, by sink."""
        return self._by_generation[max(self._by_generation)] if self._by_generation else {}

    def of(self, generation: int, sink: str) -> list[SinkPlace]:
        """The place of a sink in a generation; if its record was removed, every place that the sink ever had."""
        if generation in self._by_generation:
            place = self._by_generation[generation].get(sink)
            return [place] if place else []
        return [place for place in self.places() if place.sink == sink]

    def description(self, place: SinkPlace) -> Description:
        """The newest description of a place."""
        return self._descriptions[place]

    def at(self, place: SinkPlace) -> Participant[Any]:
        """The participant of a place."""
        if place not in self._built:
            self._built[place] = self._build(self._descriptions[place].settings)
        return self._built[place]

    def stagings(self, place: SinkPlace) -> list[Participant[Any]]:
        """The participant of a place, and one for each other folder that earlier starts have staged in."""
        newest = self._descriptions[place].settings.get("staging")
        others = [d for staging, d in self._stagings[place].items() if staging != newest]
        return [self.at(place), *(self._build(description.settings) for description in others)]


class RoutedSink:
    """All sinks that ever had one name: each attempt goes to the place where it was staged."""

    def __init__(self, name: str, sinks: Sinks, on_commit: OnCommit) -> None:
        self._name = name
        self._sinks = sinks
        self._on_commit = on_commit

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        places = self._sinks.of(attempt.generation, self._name)
        if not places:
            raise Refused(
                f"epoch {attempt.epoch}: generation {attempt.generation} staged it for sink {self._name!r}, which its "
                "record in the journal does not describe. Nothing was changed; restore the journal from a copy"
            )
        outcome = self._sinks.at(places[0]).commit(attempt, handle)
        if not (attempt.roll and outcome is Outcome.ALREADY_COMMITTED):  # each process repeats every pending roll
            self._on_commit(attempt, self._name, outcome)
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        for place in self._sinks.of(attempt.generation, self._name):
            self._sinks.at(place).abort(attempt, handle)


class Recovery:
    """Settlement without a driver: it settles what is decided and starts nothing.

    It refuses what a start would refuse, for the sinks that decided epochs wait for.
    """

    def __init__(
        self,
        *,
        journals: Callable[[int], Journal],
        checkpoint: Checkpoint,
        sinks: Sinks,
        on_commit: OnCommit,
        reporter: Reporter = SILENT,
    ) -> None:
        incarnation, self.journal = current_journal(journals)
        query = checkpoint.query_id()
        check_belongs(self.journal, query)
        self.lineage = lineage_of(query, incarnation)
        self._checkpoint = checkpoint
        self._sinks = sinks
        names = dict.fromkeys(place.sink for place in sinks.places())
        routed = {name: RoutedSink(name, sinks, on_commit) for name in names}
        self._settlement = Settlement(checkpoint, routed, _was_checked, sinks.scratch, fold_at_once(), reporter)

    def settle(self) -> None:
        """Check the sinks that decided epochs wait for, then bring every decided epoch to done."""
        before = self.journal.read()
        self._sinks.add_generations(before)
        for epoch, place in self._waiting(before):
            try:
                memory = self._sinks.at(place).open(self.lineage)
            except EpochalError:
                raise
            except Exception as fault:
                raise CommitFailed(place.sink, epoch, fault) from fault
            observed = Observed(
                lineage=self.lineage,
                before=before,
                memories={place.sink: memory},
                committed=self._checkpoint.committed(),
                after=self.journal.read(),
                journal=self.journal.place,
                starting=False,
            )
            check_start(observed, Choices())
        self._check_rolled(before)
        self._settlement.settle(self.journal, self.lineage)

    def _check_rolled(self, view: View) -> None:
        """Refuse to carry out rolls if a target belongs to a copy of this journal; no other check applies to rolls."""
        rolled = {(sink, roll.generation) for roll in view.pending_rolls() for sink in roll.sinks}
        places = {place for sink, generation in rolled for place in self._sinks.of(generation, sink)}
        for place in sorted(places, key=str):
            try:
                holder = self._sinks.at(place).holder(self.lineage)
            except EpochalError:
                raise
            except Exception as fault:
                raise CommitFailed(place.sink, view.done_through, fault) from fault
            place_of_claim = holder.journal if holder is not None else ""
            if (why := why_held_by_copy(holder, self.journal.read(), self.lineage, place_of_claim)) is not None:
                raise TwoJournals(f"sink {place.sink!r} ({place.target}): {why}. Nothing was changed")

    def _waiting(self, view: View) -> list[tuple[int, SinkPlace]]:
        """The sinks that decided epochs wait for, each with the first such epoch."""
        first: dict[SinkPlace, int] = {}
        for epoch in decided_not_done(view, self._checkpoint.committed()):
            winner = view.winner(epoch)
            attempts = [winner] if winner else view.prepared(epoch).values()
            for attempt in attempts:
                for sink in attempt.sinks:
                    for place in self._sinks.of(attempt.generation, sink):
                        first.setdefault(place, epoch)
        return [(epoch, place) for place, epoch in first.items()]


def _was_checked(journal: Journal, lineage: str, sink: str) -> None:
    """Nothing: `Recovery.settle` has checked every place before the first commit."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Staged data that a sink still has, and whether it may be removed."""

    place: SinkPlace
    attempt: Attempt
    state: State
    verdict: Removal


def leftovers(view: View, sinks: Sinks, place: SinkPlace, lineage: str, *, newest: int) -> list[Leftover]:
    """The staged data that one sink still has. `newest` and later generations may be alive."""
    found = {a for participant in sinks.stagings(place) for a in participant.leftovers(lineage, sinks.scratch)}
    return [
        Leftover(place, a, view.state(a.epoch, a.generation), removal_of(view, a, newest=newest)) for a in sorted(found)
    ]


def remove_leftovers(
    journal: Journal, sinks: Sinks, place: SinkPlace, lineage: str, *, newest: int, epoch: int | None = None
) -> list[Attempt]:
    """Remove what the rules allow of one sink's leftovers, or of those of one epoch; seal before delete."""
    return clear(journal, sinks.stagings(place), lineage, newest=newest, by=newest, scratch=sinks.scratch, epoch=epoch)


def fence(
    journal: Journal,
    lineage: str,
    sinks: Sinks,
    *,
    version: str = "",
    described: Mapping[str, Description] | None = None,
    start_ids: Callable[[], str] = new_start_id,
    expected: int | None = None,
) -> int:
    """Claim the next generation without a driver, so that a driver that still runs stops at its next step.

    The generation has the sinks of the newest one, updated with those in `described`; their targets are claimed too.
    Refused on a copy of the journal: the driver of the other journal would not notice. Refused, too, if the newest
    generation is not the `expected` one: another driver has started meanwhile.
    """
    while True:
        view = journal.read()
        sinks.add_generations(view)
        latest = view.latest
        if latest is None or latest.closed:
            raise Refused(f"{journal.path}: no stream runs on this journal, so there is no driver to fence")
        refuse_retired(latest, "nothing can be fenced", journal)
        refuse_unfinished(view, "nothing can be fenced")
        if expected is not None and latest.generation != expected:
            raise Refused(
                f"generation {latest.generation} was started while this command ran: it does by itself what is to be "
                "done. Nothing was changed"
            )
        started = replace(
            latest,
            generation=latest.generation + 1,
            start=start_ids(),
            sinks={**latest.sinks, **(described or {})},
            driver=replace(this_command(version), forked_from=latest.driver.ancestors),
            at=journal.now(),
        )
        targets = {name: sinks.at(_place(name, description)) for name, description in started.sinks.items()}
        memories = {name: _memory(name, target, lineage) for name, target in targets.items()}
        if journal.read().generation != view.generation:
            continue  # another driver has started meanwhile, and may have claimed the targets
        for name, memory in memories.items():
            if (why := why_not_ours(memory.holder, view, lineage, journal.place)) is not None:
                raise TwoJournals(
                    f"sink {name!r} ({memory.target}): {why}. This checkpoint is a copy, or was moved. Nothing was "
                    "changed. Use the checkpoint that the target belongs to, or start the query on this one"
                )
        if not journal.claim(started):
            continue
        claims = {name: claim_of(started, journal.place, name) for name in targets}
        if all(target.claim(claims[name], version=memories[name].version) for name, target in targets.items()):
            return started.generation
        expected = None if expected is None else started.generation  # this claim is the newest one now
        if (newer := journal.read().generation) > started.generation:
            raise FencedOut(
                f"generation {started.generation} was superseded by generation {newer}: another driver has started "
                "this query"
            )


def _memory(name: str, target: Participant[Any], lineage: str) -> Memory:
    try:
        return target.open(lineage)
    except EpochalError:
        raise
    except Exception as fault:
        raise Refused(
            f"sink {name!r} does not answer, so a driver that writes to it cannot be stopped: {fault}. Nothing was "
            "changed. Try again when it is back"
        ) from fault


def open_rows(view: View, sinks: Sinks) -> list[tuple[str, OpenRows]]:
    """The open rows of every sink, also of those that the newest generation does not have."""
    return [(name, rows) for name in sinks.names() for rows in open_rows_of(view, sinks, name)]


def open_rows_of(view: View, sinks: Sinks, name: str) -> list[OpenRows]:
    """The open rows of one sink."""
    place = _open_place(view, sinks, name)
    found = None if place is None else sinks.at(place).rolls
    return [] if found is None else list(found.open_rows(view.sink_state(name)))


def roll_all(
    journal: Journal,
    checkpoint: Checkpoint,
    lineage: str,
    sinks: Sinks,
    *,
    version: str = "",
    start_ids: Callable[[], str] = new_start_id,
) -> int:
    """Record a roll of all that is open, under a new generation, which is returned. `Recovery` carries it out."""
    view = journal.read()
    _refuse_if_in_doubt(view, checkpoint)  # before the driver is stopped, and again when no driver can go on
    places = {name: place for name in sinks.names() if (place := _open_place(view, sinks, name)) is not None}
    described = {name: sinks.description(place) for name, place in places.items()}
    generation = fence(journal, lineage, sinks, version=version, described=described, start_ids=start_ids)
    view = journal.read()
    _refuse_if_in_doubt(view, checkpoint)
    view = rolls.seal_older(journal, view, by=generation)
    try:
        start = view.start_of(generation)
        attempt = Attempt(lineage, view.done_through, generation, 1, start, scratch=sinks.scratch)
        rolls.close(journal, view, {name: sinks.at(place) for name, place in places.items()}, attempt, every=True)
    except FileExistsError:
        raise FencedOut(f"generation {generation} was superseded: another driver has started this query") from None
    return generation


def _refuse_if_in_doubt(view: View, checkpoint: Checkpoint) -> None:
    doubtful = [epoch for epoch in view.waiting() if view.prepared(epoch)]
    if doubtful or checkpoint.committed() > view.done_through:
        raise Refused(
            f"epoch {min(doubtful, default=view.done_through + 1)} is not decided and was staged from what is open "
            "now. Nothing was published. Start the query once more, which decides it, then stop it and roll"
        )


def _open_place(view: View, sinks: Sinks, name: str) -> SinkPlace | None:
    """The newest place of a sink that has the rows which it holds open; None if it holds none."""
    state = view.open_state(name)
    if not state:
        return None
    places = (p for p in sinks.places() if p.sink == name and state.get("target", p.target) == p.target)
    return next((place for place in places if sinks.at(place).rolls is not None), None)


def check_belongs(journal: Journal, query: str) -> None:
    """Refuse a journal that is empty or belongs to another checkpoint."""
    latest = journal.read().latest
    if latest is None:
        raise Refused(
            f"{journal.path} holds no journal: epochal has not run on this checkpoint, its journal was lost (a start "
            "says what the sinks hold), or it is kept elsewhere (EpochWriter's journal=, --journal here)"
        )
    if latest.query != query:
        raise Refused(
            f"{journal.path} is the journal of query {latest.query}, the checkpoint belongs to {query}. Nothing was "
            "written"
        )


def _place(sink: str, description: Description) -> SinkPlace:
    return SinkPlace(sink, description.kind, description.target)
