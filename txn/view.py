"""All records of a journal, folded into the answers that the protocol needs. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import NO_EPOCH, Handle, Staged, lineage_of
from epochal.txn.records import (
    NO_WINNER,
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Record,
    Roll,
    Rolled,
    Seal,
    Snapshot,
    StateRecord,
    attempt_name,
)
from epochal.txn.row_digests import RowDigest
from epochal.txn.state.keys import holds_rows
from epochal.txn.state.versions import Position, SinkState
from epochal.txn.states import State, advance
from epochal.txn.totals import EpochSpan, Totals

States: TypeAlias = Mapping[str, SinkState]  # by sink
Step: TypeAlias = tuple[Position, Mapping[str, Staged]]  # its position in the order, and what sinks staged

KEEP_GENERATIONS = 8  # starts that no compaction removes
RESTORE = "restore the journal from a copy that has it"


@dataclass(frozen=True, slots=True)
class StatesAt:
    """The state of every sink after an epoch, with or without the rolls that follow it."""

    epoch: int
    states: States
    rolled: bool = False


@dataclass(frozen=True)
class View:
    """The state of a stream, by the records of its journal."""

    generations: Mapping[int, GenerationStarted]
    attempts: Mapping[int, Mapping[int, Prepared | Seal]]  # epoch -> generation -> record
    decided: Mapping[int, int]  # epoch -> winning generation
    done: frozenset[int]
    floor: int = NO_EPOCH  # every epoch up to here is done and folded away
    rolls: Mapping[int, Mapping[int, Roll]] = field(default_factory=dict)  # generation -> number -> record
    carried_out: frozenset[tuple[int, int]] = frozenset()  # generation and number of rolls that every sink shows
    folded_totals: Totals | None = None  # what was written up to the floor; None if an older version folded it
    undecidable: frozenset[int] = frozenset()  # epochs that were in doubt when the journal was closed
    state_record: StateRecord | None = None  # the newest
    # What it lists, or what a snapshot of an older version has; None if it was not read.
    stored: States | None = field(default=None, compare=False)
    # From an earlier fold. The records of these epochs may lack handles and changes.
    computed: StatesAt | None = field(default=None, compare=False)
    _states: dict[str, SinkState] = field(default_factory=dict, compare=False, repr=False)  # a cache

    @cached_property
    def generation(self) -> int:
        """The highest generation that ever started; 0 before the first."""
        return max(self.generations, default=0)

    @property
    def latest(self) -> GenerationStarted | None:
        """The newest start. It holds what later starts need."""
        return self.generations.get(self.generation)

    @property
    def base(self) -> int:
        """The first epoch that this journal covers."""
        return self.latest.base if self.latest else 0

    @property
    def lineage(self) -> str | None:
        return lineage_of(self.latest.query, self.latest.incarnation) if self.latest else None

    @cached_property
    def done_through(self) -> int:
        """The last epoch that is done; epochs are done in order."""
        return max([self.floor, *self.done])

    def is_over(self, epoch: int) -> bool:
        """Whether an epoch is done, folded away, or older than the journal."""
        return epoch <= self.done_through or epoch < self.base

    def is_decided(self, epoch: int) -> bool:
        return epoch in self.decided or self.is_over(epoch)

    def waiting(self) -> list[int]:
        """Epochs with attempts or a decision that are not done, lowest first."""
        return sorted(e for e in {*self.attempts, *self.decided} if not self.is_over(e))

    def prepared(self, epoch: int) -> dict[int, Prepared]:
        """The generations that prepared an epoch."""
        return {g: r for g, r in self.attempts.get(epoch, {}).items() if isinstance(r, Prepared)}

    def winner(self, epoch: int) -> Prepared | None:
        """The attempt that became the epoch; None if there is none yet, or its record was folded away."""
        return self.prepared(epoch).get(self.decided.get(epoch, 0))

    def is_sparks_own(self, epoch: int) -> bool:
        """Whether Spark took an epoch for itself, to change the partitions of its state: no sink was to get it.

        False if its record was folded away; then a later epoch is done.
        """
        winner = self.winner(epoch)
        return winner is not None and winner.repartitioned is not None

    @property
    def shown_through(self) -> int:
        """The last epoch that is done and was given to sinks."""
        epoch = self.done_through
        while self.is_sparks_own(epoch):
            epoch -= 1
        return epoch

    def start_of(self, generation: int) -> str:
        """The random id of a generation's start; empty if its record has none or was removed."""
        started = self.generations.get(generation)
        return started.start if started is not None else ""

    def previous_epoch(self, sink: str, generation: int, *, before: int, only_done: bool = False) -> int | None:
        """The last epoch below `before` that went to a sink in the target that a generation gives it; None if unknown.

        Epochs that the user has accepted as missing do not count.
        """
        target = self.target(sink, generation)
        accepted = self.latest.missing.get(sink, NO_EPOCH) if self.latest else NO_EPOCH
        lowest = max(self.floor, accepted)
        for epoch in sorted((e for e in self.decided if lowest < e < before), reverse=True):
            winner = self.winner(epoch)
            counts = winner is not None and sink in winner.sinks and (epoch in self.done or not only_done)
            if winner is not None and counts and self.target(sink, winner.generation) == target is not None:
                return epoch
        return None

    def target(self, sink: str, generation: int) -> str | None:
        """A sink's target in a generation; None if the generation's start was removed or has no such sink."""
        started = self.generations.get(generation)
        described = started.sinks.get(sink) if started is not None else None
        return described.target if described is not None else None

    def next_roll(self, generation: int) -> int | None:
        """The number of a generation's next roll; None if a newer generation has sealed its rolls."""
        rolls = self.rolls.get(generation, {})
        return None if any(roll.is_seal for roll in rolls.values()) else max(rolls, default=0) + 1

    def recorded_rolls(self) -> list[Roll]:
        """Every roll that is not folded away, in order.

        A roll whose generation was removed does not count: a stalled driver recorded it after its seal was purged.
        """
        valid = [rolls for generation, rolls in self.rolls.items() if generation in self.generations]
        unfolded = [r for rolls in valid for r in rolls.values() if not r.is_seal and r.after > self.floor]
        return sorted(unfolded, key=lambda r: (r.after, r.generation, r.number))

    def rolls_after(self, epoch: int) -> int:
        """How many rolls followed an epoch."""
        return sum(1 for roll in self.recorded_rolls() if roll.after == epoch)

    def pending_rolls(self) -> list[Roll]:
        """The rolls that may not be visible in every sink yet, in order."""
        return [r for r in self.recorded_rolls() if (r.generation, r.number) not in self.carried_out]

    def is_overtaken(self, epoch: int, generation: int) -> bool:
        """Whether a newer generation rolled before an attempt was recorded: the attempt builds on parts now closed.

        Its driver was fenced before Spark could write commits/N, so the attempt cannot win.
        """
        return any(r.generation > generation and r.after < epoch for r in self.recorded_rolls())

    @cached_property
    def may_roll(self) -> bool:
        """Whether a sink of this stream may hold rows open over epochs: it is described so, or its state says so."""
        described = (sink for record in self.generations.values() for sink in record.sinks.values())
        return any(sink.keeps_open for sink in described) or bool(self.rolls) or bool(self.open_states())

    def generations_with_open_rows(self) -> set[int]:
        """For each target with open rows, the newest generation that describes it, and the newest that opened any."""
        newest, opened = {}, {}
        for name, state in self.open_states().items():
            for number, record in sorted(self.generations.items()):
                sink = record.sinks.get(name)
                if sink is not None and state.get("target", sink.target) == sink.target:
                    newest[name] = number
                if sink is not None and sink.keeps_open:
                    opened[name] = number  # `has_opened` asks for it
        return {*newest.values(), *opened.values()}

    def has_opened(self, sink: str) -> bool:
        """Whether a start of this stream had a sink of this name that could hold rows open.

        If not, its state is something else that it keeps: there is nothing to publish.
        """
        return any(
            described.keeps_open
            for record in self.generations.values()
            if (described := record.sinks.get(sink)) is not None
        )

    def sink_state(self, sink: str, *, through: int | None = None) -> SinkState:
        """A sink's state after every decided epoch and roll up to `through`."""
        if through is not None:
            return self._state(sink, until=(through + 1,))
        if sink not in self._states:
            self._states[sink] = self._state(sink, until=None)
        return self._states[sink]

    def sink_states(self) -> dict[str, SinkState]:
        """The state of every sink that has one."""
        states = {name: self.sink_state(name) for name in self._stateful}
        return {name: state for name, state in states.items() if state}

    def open_states(self) -> dict[str, SinkState]:
        """The state of every sink that holds rows open: one that has more than bookkeeping."""
        return {name: state for name, state in self.sink_states().items() if holds_rows(state)}

    def open_state(self, sink: str) -> SinkState:
        """A sink's state, empty if it holds no rows open."""
        return self.open_states().get(sink, SinkState())

    @cached_property
    def settled_states(self) -> StatesAt:
        """The states after the last epoch that is done, without the rolls that may still follow it."""
        states = {name: self._state(name, until=(self.done_through, 1)) for name in self._stateful}
        return StatesAt(self.done_through, {name: state for name, state in states.items() if state})

    def without_states(self) -> View:
        """The same view, which cannot be asked for states and holds none in memory."""
        return replace(self, stored=None, computed=None, _states={})

    @property
    def stored_through(self) -> int:
        """The last epoch whose changes are in the stored states, with those of the rolls after it."""
        return self.floor if self.state_record is None else self.state_record.through

    def _state(self, sink: str, *, until: Position | None) -> SinkState:
        state = self._base.states.get(sink)
        if state is None:
            state = SinkState()
        for order, sinks in self._changes:
            if sink in sinks and (until is None or order < until):
                state = state.then(order, sinks[sink].changes)
        return state

    @cached_property
    def _stateful(self) -> list[str]:
        changed = (name for _, sinks in self._changes for name, staged in sinks.items() if staged.changes)
        return sorted({*self._base.states, *changed})

    @cached_property
    def _base(self) -> StatesAt:
        # At the stored states' own epoch they count: they also cover the rolls after that epoch.
        if self.computed is not None and self.computed.epoch > self.stored_through:
            return self.computed
        if self.stored is None:
            raise RuntimeError("the sinks' state was asked of a view that was made without it")
        return StatesAt(self.stored_through, self.stored, rolled=True)

    @cached_property
    def _changes(self) -> list[Step]:
        """Decided epochs and rolls after the base, in order: an epoch is (N, 0), the rolls after it (N, 1, ...)."""
        base = self._base
        winners = ((epoch, self.winner(epoch)) for epoch in self.decided if epoch > base.epoch)
        steps: list[Step] = [((epoch, 0), record.sinks) for epoch, record in winners if record is not None]
        since = base.epoch if base.rolled else base.epoch - 1
        rolls = [r for r in self.recorded_rolls() if r.after > since]
        steps += [((r.after, 1, r.generation, r.number), r.sinks) for r in rolls]
        return sorted(steps, key=lambda step: step[0])

    def totals(self, *, through: int) -> Totals:
        """What was written to every sink up to an epoch."""
        since = self.folded_totals or Totals(max(self.base, self.floor + 1))
        later = range(max(self.floor + 1, self.base), through + 1)
        return since.plus(self._spans(through), (epoch for epoch in later if self.is_sparks_own(epoch)))

    def _spans(self, through: int) -> Iterator[tuple[str, EpochSpan]]:
        for epoch in range(max(self.floor + 1, self.base), through + 1):
            winner = self.winner(epoch)
            for name, staged in winner.sinks.items() if winner is not None else ():
                target = self.target(name, self.decided[epoch]) or ""
                yield name, EpochSpan(target, epoch, epoch, 1, RowDigest(staged.rows, staged.digest))

    def state(self, epoch: int, generation: int) -> State:
        """The state of one attempt; JournalCorrupt if its records contradict each other."""
        if epoch <= self.floor:
            return State.LOST  # the winner is visible; records that a stalled driver made since mean nothing
        what = f"epoch {epoch}, generation {generation}"
        record = self.attempts.get(epoch, {}).get(generation)
        if record is None:
            return State.STAGING
        if isinstance(record, Seal):
            state = advance(State.STAGING, State.SEALED, what=what)
            if self.decided.get(epoch) == generation:
                advance(state, State.DECIDED, what=what)
            return state
        state = advance(State.STAGING, State.PREPARED, what=what)
        if epoch not in self.decided:
            return advance(state, State.LOST, what=what) if self.is_over(epoch) else state
        if self.decided[epoch] != generation:
            return advance(state, State.LOST, what=what)
        state = advance(state, State.DECIDED, what=what)
        return advance(state, State.DONE, what=what) if epoch in self.done else state


def fold(records: Iterable[Record], computed: StatesAt | None = None, stored: States | None = None) -> View:
    """The view of a set of records, in any order.

    `computed` are states that were computed from them before, `stored` those of the newest state record.
    """
    generations: dict[int, GenerationStarted] = {}
    attempts: dict[int, dict[int, Prepared | Seal]] = {}
    decided: dict[int, int] = {}
    done: dict[int, int] = {}
    rolls: dict[int, dict[int, Roll]] = {}
    carried_out: set[tuple[int, int]] = set()
    floor = NO_EPOCH
    totals: Totals | None = None
    snapshot: Snapshot | None = None
    state_record: StateRecord | None = None
    undecidable: set[int] = set()
    for record in records:
        match record:
            case GenerationStarted():
                generations[record.generation] = record
            case Prepared() | Seal():
                attempts.setdefault(record.epoch, {})[record.generation] = record
            case Decided(generation=winner) if winner == NO_WINNER:
                undecidable.add(record.epoch)
            case Decided():
                decided[record.epoch] = record.generation
            case Done():
                done[record.epoch] = record.generation
            case Roll():
                rolls.setdefault(record.generation, {})[record.number] = record
            case Rolled():
                carried_out.add((record.generation, record.number))
            case Snapshot() if record.through > floor:
                floor, snapshot, totals = record.through, record, record.totals
            case StateRecord() if state_record is None or record.number > state_record.number:
                state_record = record
    if state_record is None and stored is None:
        kept = snapshot.kept if snapshot is not None else {}
        stored = {name: SinkState(dict(state)) for name, state in kept.items()}
    view = View(
        generations,
        attempts,
        decided,
        frozenset(done),
        floor,
        rolls,
        frozenset(carried_out),
        totals,
        frozenset(undecidable),
        state_record,
        stored,
        computed,
    )
    _check(view, done)
    _check_state(view, snapshot)
    return view


def _check(view: View, done: Mapping[int, int]) -> None:
    queries = {g.query for g in view.generations.values()}
    if len(queries) > 1:
        raise JournalCorrupt(f"the journal holds records of several queries: {', '.join(sorted(queries))}")
    for epoch, generation in view.decided.items():
        if epoch > view.floor:
            view.state(epoch, generation)
            if view.winner(epoch) is None:
                raise JournalCorrupt(
                    f"epoch {epoch} was decided for generation {generation}, whose PREPARED record is missing "
                    f"({attempt_name(epoch, generation)}); {RESTORE}"
                )
    for epoch, generation in done.items():
        if epoch > view.floor and view.decided.get(epoch) != generation:
            raise JournalCorrupt(
                f"epoch {epoch} is done but was not decided for generation {generation} "
                f"({Decided(epoch, generation).name}); {RESTORE}"
            )
    _check_generations(view)
    _check_epochs(view)
    _check_rolls(view)


def _check_generations(view: View) -> None:
    """Starts have numbers without a gap, and only old ones are ever removed."""
    for number in range(max(1, view.generation - KEEP_GENERATIONS + 1), view.generation):
        if number not in view.generations:
            raise JournalCorrupt(f"the start of generation {number} is missing (g{number:06d}.json); {RESTORE}")
    made_by = {r.generation for e, rs in view.attempts.items() if e > view.floor for r in rs.values()}
    seals = {r.by for rs in view.attempts.values() for r in rs.values() if isinstance(r, Seal)}
    newest = max([0, *made_by, *seals, *view.rolls])
    if newest > view.generation:
        raise JournalCorrupt(
            f"generation {newest} has left records, but its start is missing (g{newest:06d}.json); {RESTORE}"
        )


def _check_epochs(view: View) -> None:
    """There is no gap: each epoch has a record until a snapshot covers it, and each done epoch has a winner."""
    first = max(view.base, view.floor + 1)
    recorded = {e for e in view.attempts if view.prepared(e)} | view.decided.keys() | view.undecidable
    for epoch in range(first, max(recorded, default=first)):
        if epoch not in recorded:
            raise JournalCorrupt(
                f"epoch {epoch} has no record, but epoch {max(recorded)} has: records or a snapshot are missing; "
                f"{RESTORE}"
            )
    for epoch in range(first, view.done_through):
        if epoch not in view.decided and epoch not in view.undecidable:
            raise JournalCorrupt(
                f"epoch {view.done_through} is done, but the decision about epoch {epoch} is missing "
                f"({Decided(epoch, 0).name}); {RESTORE}"
            )


def _check_rolls(view: View) -> None:
    """Each roll, and each winner, records how many rolls there were since the epoch before. That epoch has a record."""
    rolls = view.recorded_rolls()
    known = max([view.floor, view.base - 1, *view.decided, *(e for e in view.attempts if view.prepared(e))])
    counts: Counter[int] = Counter()
    for roll in rolls:
        if roll.after > known:
            raise JournalCorrupt(
                f"{roll.name} closed rows after epoch {roll.after}, but the newest epoch with a record is {known}: "
                f"records of later epochs are missing; {RESTORE}"
            )
        _check_count(roll.after, roll.rolls, counts[roll.after])
        counts[roll.after] += 1
    for epoch in view.decided:
        winner = view.winner(epoch)
        if winner is not None and epoch - 1 > view.floor:
            _check_count(epoch - 1, winner.rolls, counts[epoch - 1])


def _check_count(epoch: int, recorded: int, there: int) -> None:
    if there < recorded:
        raise JournalCorrupt(f"{recorded} rolls followed epoch {epoch}, but only {there} are there; {RESTORE}")


def _check_state(view: View, snapshot: Snapshot | None) -> None:
    """A snapshot names the state record that covers it, and a state record covers only epochs that are decided.

    Their DECIDED records are brought to stable storage before the state record is created, and go only once a snapshot
    covers them. Where one is missing, the journal's files are of different times.
    """
    number = view.state_record.number if view.state_record is not None else 0
    if snapshot is not None and (snapshot.state > number or (snapshot.state and view.stored_through < view.floor)):
        raise JournalCorrupt(
            f"{snapshot.name} needs state record {snapshot.state} (m{snapshot.state:012d}.json) or a newer one, which "
            f"has what sinks hold open; {RESTORE}"
        )
    record = view.state_record
    for epoch in range(max(view.base, view.floor + 1), record.last_epoch + 1) if record is not None else ():
        if record is not None and epoch not in view.decided and epoch not in view.undecidable:
            raise JournalCorrupt(
                f"{record.name} has the sinks' state after epoch {record.last_epoch}, but the decision about epoch "
                f"{epoch} is missing ({Decided(epoch, 0).name}): some files of the journal are older than others; "
                "restore all of them from one copy"
            )


def handles(record: Prepared | Roll) -> dict[str, Handle]:
    """The handles of a record by sink."""
    return {sink: staged.handle for sink, staged in record.sinks.items()}
