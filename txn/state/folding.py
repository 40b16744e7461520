"""Folding: changes of done epochs move from records to segments, segments are merged, records are removed.

Any process may fold at any time, also several at once, and none waits for another. The steps, each of which may be the
last one before a crash:

1. Segments are written for the next state record. Nothing refers to them yet.
2. The state record is created under the number after the one that it builds on. If that name is taken, another process
   was faster, and what this one wrote is removed by somebody's step 4.
3. The snapshot is created, but only after a listing has shown that the newest state record covers it, whoever made it:
   a process that stalled before step 2 may create a number that others have passed and removed. From here on records
   may go.
4. Records that the snapshot covers are removed, state records before the newest, and segments that the newest does not
   list, up to its number. A newer state record lists only segments of the one before it and segments of its own number,
   so what is removed here is in no state record to come.

Nobody removes a segment that the newest state record lists. If one is gone all the same, a driver that has the whole
state in memory heals the journal: it writes one segment with all of it, and the next state record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from epochal.txn import failpoints
from epochal.txn.files import Files, join
from epochal.txn.records import (
    Prepared,
    Record,
    Roll,
    Snapshot,
    StateRecord,
    attempt_name,
    decode,
    encode,
    epoch_of_name,
    generation_of_name,
    is_record_name,
)
from epochal.txn.state.folding_plan import FoldingPlan, Whole
from epochal.txn.state.gauge import Gauge
from epochal.txn.state.memory import no_garbage_collection
from epochal.txn.state.merging import merged_blocks
from epochal.txn.state.policy import Knobs, affordable_merge
from epochal.txn.state.segments import SegmentRef
from epochal.txn.state.shards import Entries, shards_for
from epochal.txn.state.store import SegmentFiles, missing, number_of_segment
from epochal.txn.state.versions import Position
from epochal.txn.view import KEEP_GENERATIONS, View

BATCH = 200_000  # entries that are in memory before they become a segment


class Abandoned(Exception):
    """Raised between two steps of a merge, to end it: the query ends. Segments stay as they are."""


class Stale(Exception):
    """Another process has folded meanwhile: there is nothing to do."""


@dataclass(frozen=True)
class Folding:
    """Carries plans out in one journal's folder."""

    files: Files
    folder: str
    now: Callable[[], str]
    knobs: Knobs = field(default_factory=Knobs)
    clock: Callable[[], float] = time.time
    between: Callable[[], None] = lambda: None  # called between two steps of a long merge; may raise Abandoned
    affords: Callable[[float], bool] = lambda _: True  # whether a merge of so many seconds may be begun
    gauge: Gauge = field(default_factory=Gauge)

    def __repr__(self) -> str:
        return "folding"

    def fold(self, plan: FoldingPlan, read: Callable[[], View]) -> None:
        """Carry a plan out. `read` reads the journal anew, with or without states.

        SegmentLost if a segment is gone, or damaged, that the newest state record lists.
        """
        view = plan.view
        if plan.whole is not None:
            self._heal(view, plan.through, plan.whole)
            return
        if plan.through <= view.floor:
            return
        self.check_segments()
        try:
            number = self._store(view, plan.through)
        except Stale:
            self.check_segments()
            return
        totals = view.totals(through=plan.through)
        failpoints.hit("before-snapshot")
        self._create(Snapshot(plan.through, self.now(), totals=totals, state=number))
        failpoints.hit("after-snapshot")
        self.purge(plan, read)

    def purge(self, plan: FoldingPlan, read: Callable[[], View]) -> None:
        """Remove the records that a snapshot covers. Repeatable: what a crash leaves is removed the next time."""
        through, view = plan.through, read()  # again: others may have started and rolled since the plan was made
        names = self.files.names(self.folder)
        records = [n for n in names if is_record_name(n)]
        removable = _removable_generations(plan, view)
        generations = [n for n in records if generation_of_name(n) in removable]
        covered = [n for n in records if (epoch := epoch_of_name(n)) is not None and epoch <= through]
        older = [n for n in records if n.startswith("s") and int(n[1:13]) < through]
        # Remove a generation before the seal of its rolls: a roll of a removed generation does not count.
        rolls = _removable_rolls(view, records, through, removable)
        obsolete = (*covered, *older, *generations, *rolls, *self._unlisted(names))
        failpoints.hit("before-purge")
        for name in obsolete:
            self.files.delete(join(self.folder, name))
        failpoints.hit("after-purge")

    def check_segments(self) -> None:
        """Raise SegmentLost if a segment is gone that the newest state record lists.

        A listing may overlap with another process's step 4. Then it has removed the state record too: if that is still
        the newest, nobody was right to remove the segment.
        """
        before: tuple[str, str] | None = None
        while True:
            names = self.files.names(self.folder)
            try:
                newest = self._newest(names)
            except Stale:
                continue  # a newer one is there
            lost = {ref.name for ref in newest.segments}.difference(names) if newest is not None else set()
            if newest is None or not lost:
                return
            found = newest.name, min(lost)
            if found == before:
                raise missing(join(self.folder, found[1]))
            before = found

    def _heal(self, view: View, through: int, whole: Whole) -> None:
        number = view.state_record.number + 1 if view.state_record is not None else 1
        entries = {sink: Entries(state) for sink, state in whole.states.items()}
        self._record(number, through, [self._write(entries, number, 0, whole.epoch, clean=True)])

    def _record(self, number: int, through: int, listed: Sequence[SegmentRef]) -> None:
        # The decisions that the segments follow from are not durable yet. Without them, after a power cut, the journal
        # would look like one of which some files are older than others.
        self.files.sync(self.folder)
        failpoints.hit("before-state")
        self._create(StateRecord(number, through, tuple(listed), self.now()))
        failpoints.hit("after-state")

    def _store(self, view: View, through: int) -> int:
        """Make a state record that covers an epoch; its number, or 0 if there is no state."""
        before = view.state_record
        if before is not None and before.through >= through:
            return before.number
        number = before.number + 1 if before is not None else 1
        listed = list(before.segments) if before is not None else []
        with no_garbage_collection():
            listed += self._written(view, through, number)
        if before is None and not listed:
            return 0
        listed = self._merged(listed, number)
        self._record(number, through, listed)
        newest = self._newest(self.files.names(self.folder))
        if newest is None or newest.through < through:
            raise Stale
        return newest.number

    def _written(self, view: View, through: int, number: int) -> list[SegmentRef]:
        """New segments with the changes since the last state record."""
        at = self.clock()
        first = view.state_record is None
        states: dict[str, Entries] = self._kept(view) if first else {}
        made: list[SegmentRef] = []
        last = view.stored_through
        for epoch, record in self._steps(view, through):
            if sum(map(len, states.values())) >= BATCH:
                made.append(self._write(states, number, len(made), last, clean=first and not made))
                states = {}
            for sink, staged in record.sinks.items():
                if staged.changes:
                    states.setdefault(sink, Entries()).fold(staged.changes, at)
            last = epoch
        if first and not made:
            for entries in states.values():
                entries.deleted.clear()  # nothing is older than these
        states = {sink: entries for sink, entries in states.items() if entries}
        if states:
            made.append(self._write(states, number, len(made), through, clean=first and not made))
        return made

    def _write(
        self, states: Mapping[str, Entries], number: int, place: int, through: int, *, clean: bool
    ) -> SegmentRef:
        store = SegmentFiles(self.files, self.folder)
        failpoints.hit("before-segment")
        ref = store.write(states, number=number, place=place, through=through, clean=clean)
        failpoints.hit("after-segment")
        return ref

    def _kept(self, view: View) -> dict[str, Entries]:
        """The states in the snapshot of an older version."""
        if view.floor < 0:
            return {}
        snapshot = self._read(Snapshot(view.floor).name)
        assert isinstance(snapshot, Snapshot)  # its name says so
        return {sink: Entries(dict(state)) for sink, state in snapshot.kept.items()}

    def _steps(self, view: View, through: int) -> Iterable[tuple[int, Prepared | Roll]]:
        """The winners of epochs and the rolls after the last state record, in order, from disk."""
        after = view.stored_through
        steps: list[tuple[Position, str]] = [
            ((epoch, 0), attempt_name(epoch, winner))
            for epoch, winner in view.decided.items()
            if after < epoch <= through
        ]
        steps += [
            ((roll.after, 1, roll.generation, roll.number), roll.name)
            for roll in view.recorded_rolls()
            if after < roll.after <= through
        ]
        for position, name in sorted(steps):
            record = self._read(name)
            assert isinstance(record, Prepared | Roll)  # its name says so, and a winner is no seal
            yield position[0], record

    def _merged(self, listed: Sequence[SegmentRef], number: int) -> list[SegmentRef]:
        """The segments, with those in one that the knobs say should be one."""
        count = affordable_merge(listed, self.knobs, self.gauge.measured, self.affords)
        rest, chosen = list(listed[: len(listed) - count]), listed[len(listed) - count :]
        if not chosen:
            return list(listed)
        store = SegmentFiles(self.files, self.folder)
        try:
            segments = store.open(chosen)
        except FileNotFoundError:
            raise Stale from None
        shards = max(shards_for(sum(ref.puts for ref in chosen)), *(segment.shards for segment in segments))
        now = self.clock()
        drop_before = None if rest else now - self.knobs.retention
        blocks = merged_blocks(segments, shards, now=now, drop_before=drop_before, between=self.between)
        if not rest and not any(ref.puts for ref in chosen):
            return []
        failpoints.hit("before-segment-merge")
        try:
            with self.gauge.merging(sum(ref.entries for ref in chosen)):
                ref = store.write_blocks(
                    blocks, shards, number=number, place=len(listed), through=chosen[-1].through, clean=not rest
                )
        except Abandoned:
            return list(listed)
        failpoints.hit("after-segment-merge")
        return [*rest, ref]

    def _unlisted(self, names: Iterable[str]) -> list[str]:
        """State records before the newest, and segments that it does not list."""
        try:
            newest = self._newest(names)
        except Stale:
            return []  # a newer one is there
        if newest is None:
            return []
        listed = {newest.name, *(ref.name for ref in newest.segments)}
        records = [n for n in names if _is_state_record(n)]
        numbers = ((n, number_of_segment(n)) for n in names)
        segments = [n for n, number in numbers if number is not None and number <= newest.number]
        return [n for n in (*records, *segments) if n not in listed]

    def _newest(self, names: Iterable[str]) -> StateRecord | None:
        """The newest state record of a listing."""
        name = max((n for n in names if _is_state_record(n)), default=None)
        record = self._read(name) if name is not None else None
        assert isinstance(record, StateRecord | None)  # its name says so
        return record

    def _read(self, name: str) -> Record:
        path = join(self.folder, name)
        try:
            return decode(path, name, self.files.read(path))
        except FileNotFoundError:
            raise Stale from None

    def _create(self, record: Snapshot | StateRecord) -> bool:
        return self.files.create(join(self.folder, record.name), encode(record))


def _is_state_record(name: str) -> bool:
    return name.startswith("m") and is_record_name(name)


def _removable_generations(plan: FoldingPlan, view: View) -> set[int]:
    """The starts that may be removed: old, and not needed to find the sinks of what is open or was rolled lately.

    In a stream that rolls, a generation whose rolls are not sealed stays: it might still record one.
    """
    needed = {r.generation for r in view.recorded_rolls() if r.after > plan.through} | plan.open_generations
    needed |= {g for e in view.attempts if e > plan.through for g in view.prepared(e)}  # a commit needs their sinks
    old = {*sorted(view.generations)[:-KEEP_GENERATIONS]} & plan.view.generations.keys()
    return {n for n in old if n not in needed and not (plan.may_roll and view.next_roll(n) is not None)}


def _removable_rolls(view: View, names: Iterable[str], through: int, gone: Iterable[int]) -> list[str]:
    """The names of the rolls that may be removed.

    A generation's last roll stays as long as its start: it defines the next number, or that there is none.
    """
    remaining = view.generations.keys() - set(gone)
    removable: set[str] = set()
    for generation, rolls in view.rolls.items():
        for roll in rolls.values():
            if generation not in remaining or (roll.after <= through and roll.number != max(rolls)):
                removable.add(roll.name)
    # The DONE record of a roll goes with the roll, not before: without it the roll would be carried out again. A roll
    # that is listed and not in the view was recorded since the view was read.
    there = {*names}
    done = {n for n in there if n.startswith("r") and n.endswith(".done.json")}
    over = {n for n in done if _roll_of(n) in removable or _roll_of(n) not in there}
    return [n for n in names if n in removable or n in over]


def _roll_of(done: str) -> str:
    return done.replace(".done.", ".")
