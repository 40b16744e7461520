"""The journal: a folder of small immutable records, each made by create-if-absent.

Reading lists the folder and reads the records not seen before: records never change, so each is read
once. Reading while others write is safe because a record is complete before it gets its name. A listing
may race with a compaction; the snapshot always exists before the first record that it covers is removed.

For an epoch that is done, memory holds only the counts: its handles are no longer needed, and its changes
are part of the states computed from it. So memory holds what is open once, not once for each epoch. Segments
(`state`) are read at the first reading alone: later states are computed from records.
"""

from __future__ import annotations

import datetime
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from epochal.txn import failpoints
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, is_local, join, local_path, sweep
from epochal.txn.model import Handle, Staged
from epochal.txn.records import (
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
    decode,
    encode,
    epoch_of_name,
)
from epochal.txn.state.folding import Folding
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.state.gauge import Gauge
from epochal.txn.state.policy import Extent, Measured, Policy, fold_work, may_fold
from epochal.txn.state.segments import SegmentLost
from epochal.txn.state.store import SegmentFiles, missing, number_of_segment
from epochal.txn.state.versions import SinkState
from epochal.txn.view import States, StatesAt, View, fold

log = logging.getLogger("epochal")

SPENT = Handle(0, {})  # replaces the handle of an epoch that is done; no participant accepts its version


class Journal:
    """The records of one lineage."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        policy: Policy | None = None,
        with_states: bool = True,
    ) -> None:
        """`policy` says when the sinks' state is folded. Without states, a view cannot be asked for it."""
        self.path = path
        self._files = files
        self._clock = clock
        self._policy = policy or Policy()
        self._gauge = Gauge()
        self._folded_at = clock()
        self._reader: Journal | None = None  # of the thread that folds
        self._is_segment_lost = False  # as that thread has seen
        self._with_states = with_states
        self._seen: dict[str, Record] = {}
        self._known: Mapping[str, Record] = {}  # that another reader of this journal has seen: not read again
        self._created: dict[str, bytes] = {}  # by this process, not yet in a listing: these need not be read
        self._view = fold(())
        self._settled: StatesAt | None = None
        self._sizes: dict[str, int] = {}  # of records, in bytes
        self._changes: dict[str, int] = {}  # how many entries a record changes
        self._stored: tuple[str, States] | None = None  # what a state record lists, until there are newer states

    @cached_property
    def place(self) -> str:
        """Its location, the same for every spelling of the path. Targets are bound to it."""
        return os.path.realpath(local_path(self.path)) if is_local(self.path) else self.path

    @property
    def files(self) -> Files:
        return self._files

    @property
    def view(self) -> View:
        """The journal as it was last read."""
        return self._view

    @property
    def records(self) -> tuple[Record, ...]:
        """The records as they were last read. Those of done epochs lack their handles and changes."""
        return tuple(self._seen.values())

    def done_at(self, epoch: int) -> str:
        """When an epoch was recorded as done, as of the last read; empty if that record was folded away."""
        record = self._seen.get(Done(epoch, 0).name)
        return record.at if record is not None else ""

    def now(self) -> str:
        """The current time, as written in records. For display only: no decision depends on it."""
        return datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).isoformat(timespec="milliseconds")

    def read(self) -> View:
        """Read what is new, and return the view of all records."""
        for tries_left in reversed(range(5)):
            begun, stored_before = time.monotonic(), self._stored
            names = self._names()
            if names == list(self._seen):
                return self._view
            records = self._records(names)
            if records is None:
                continue
            try:
                stored = self._restored(records.values(), last_try=not tries_left)
                view = fold(records.values(), self._settled, stored)
            except FileNotFoundError:
                continue  # a segment was merged away between listing and reading
            except JournalCorrupt as fault:
                # A listing that overlaps another driver's purge can show half an epoch; read again.
                if tries_left:
                    continue
                raise JournalCorrupt(f"{self.path}: {fault}") from None
            if self._is_incomplete(names):
                continue
            if self._settled is not None and view.done_through < self._settled.epoch:
                # The journal was replaced: forget everything read so far.
                self._seen, self._settled, self._stored, self._view = {}, None, None, fold(())
                continue
            if self._stored is not None and self._stored is not stored_before:
                self._gauge.recovery = time.monotonic() - begun
            self._settled = view.settled_states if self._with_states else None
            if self._settled is not None and self._settled.epoch > view.stored_through:
                self._stored = None  # an old version would keep every later change in memory
            self._seen, self._view = {n: _slim(r, view) for n, r in records.items()}, view
            self._created.clear()  # also what was folded away before it was listed
            for noted in (self._sizes, self._changes):
                for name in noted.keys() - records.keys():
                    del noted[name]
            return view
        raise JournalCorrupt(f"{self.path}: records vanish while they are read; is something else cleaning it?")

    def has_start(self, generation: int) -> bool:
        """Whether a generation has started. Asks for its record only; unlike `read`, any thread may call it."""
        return self._files.length(join(self.path, f"g{generation:06d}.json")) is not None

    def claim(self, record: GenerationStarted) -> bool:
        """Start a generation; False if another driver has started one with this number."""
        failpoints.hit("before-generation")
        created = self._create(record)
        failpoints.hit("after-generation")
        return created

    def prepare(self, record: Prepared) -> bool:
        """Record PREPARED; False if a newer generation has sealed it."""
        failpoints.hit("before-prepared")
        created = self._create(record)
        failpoints.hit("after-prepared")
        return created

    def seal(self, epoch: int, generation: int, *, by: int) -> bool:
        """Close an older generation's attempt; False if its PREPARED (or a seal) was there first."""
        failpoints.hit("before-seal")
        created = self._create(Seal(epoch, generation, by, self.now()))
        failpoints.hit("after-seal")
        return created

    def roll(self, record: Roll) -> bool:
        """Record what is closed between two epochs; False if a newer generation has sealed it."""
        failpoints.hit("before-roll")
        created = self._create(record)
        failpoints.hit("after-roll")
        return created

    def seal_rolls(self, generation: int, *, by: int) -> None:
        """Create the number after an older generation's last roll, so that it can record no other."""
        while (number := self.read().next_roll(generation)) is not None:
            failpoints.hit("before-roll-seal")
            self._create(Roll(generation, number, by, self.read().done_through, {}, self.now()))
            failpoints.hit("after-roll-seal")

    def finish_roll(self, record: Roll) -> None:
        """Record that what a roll closed is visible in every sink.

        Not durable, like DONE: if it is lost, the roll is carried out once more, without effect.
        """
        failpoints.hit("before-rolled")
        self._create(Rolled(record.generation, record.number, self.now()), durable=False)
        failpoints.hit("after-rolled")

    def attempt(self, epoch: int, generation: int) -> Prepared | Seal | None:
        """The record under an attempt's name."""
        name = attempt_name(epoch, generation)
        try:
            record = decode(join(self.path, name), name, self._files.read(join(self.path, name)))
        except FileNotFoundError:
            return None
        assert isinstance(record, Prepared | Seal)  # the name says so and decode compared it
        return record

    def decide(self, epoch: int, generation: int, *, durable: bool = False) -> None:
        """Record the winner, unless there is such a record already. Read the view for the result.

        Need not be durable where Spark's commits/N decides: after a power cut every driver is dead,
        and the same PREPARED records lead to the same choice.
        """
        failpoints.hit("before-decided")
        self._create(Decided(epoch, generation, self.now()), durable=durable)
        failpoints.hit("after-decided")

    def finish(self, epoch: int, generation: int) -> None:
        """Record that an epoch is done."""
        failpoints.hit("before-done")
        # Not durable: if it is lost, the epoch is committed once more, without effect.
        self._create(Done(epoch, generation, self.now()), durable=False)
        failpoints.hit("after-done")

    def plan(
        self, view: View, *, retain: int, slack: int = 20, affords: Callable[[float], bool] = lambda _: True
    ) -> FoldingPlan | None:
        """What to fold: all but the newest `retain` done epochs, once there are `slack` more or the time has come.

        A recovery objective may leave fewer epochs unfolded. A share of a processor may leave more: `affords` says
        whether so many seconds are saved up. If a segment was found to be gone, the plan is to write the whole state
        anew.
        """
        if self._is_segment_lost:
            return FoldingPlan.to_heal(view)
        unfolded = sum(1 for epoch in view.done if epoch > view.floor)
        prepared = [size for name, size in self._sizes.items() if epoch_of_name(name) is not None]
        live = sum(len(state) for state in view.sink_states().values())
        self._gauge.sized(live=live, record=sum(prepared) / max(1, unfolded))
        # With what is unfolded now: a load that has grown since the last round must not wait for as many epochs.
        knobs = self._policy.tuned(self._gauge.measured)
        retain, slack = min(retain, knobs.epochs), min(slack, knobs.epochs)
        now, age = self._clock(), knobs.segment_age
        self._folded_at = min(self._folded_at, now)  # the clock may have gone back: do not wait until it catches up
        is_time = age is not None and unfolded > retain and now - self._folded_at >= age
        if unfolded < retain + slack and not is_time:
            return None
        waiting = unfolded - retain
        changes = self._changes_to_fold(view.floor, view.done_through - retain)
        work = fold_work(epochs=waiting, changes=changes)
        if not may_fold(waiting, work, self._gauge.measured, affords):
            return None
        self._folded_at = now
        self._gauge.note_changes()
        return replace(FoldingPlan.of(view, retain=retain), work=work)

    def _changes_to_fold(self, after: int, through: int) -> int:
        """The changes in records of these epochs, and in rolls."""
        epochs = ((epoch_of_name(name), changes) for name, changes in self._changes.items())
        return sum(changes for epoch, changes in epochs if epoch is None or after < epoch <= through)

    def fold(
        self,
        plan: FoldingPlan,
        *,
        between: Callable[[], None] = lambda: None,
        affords: Callable[[float], bool] = lambda _: True,
    ) -> None:
        """Carry a plan out. Safe in another thread than the one that reads this journal.

        `between` is called between two steps of a long merge. `affords` says whether a merge may be begun that takes
        so many seconds of a processor; what changed is folded in any case.
        """
        if self._reader is None:
            self._reader = Journal(self._files, self.path, with_states=False)
        self._reader._known = self._seen  # never changed, only replaced
        try:
            with self._gauge.folding(plan.work):
                self._carry_out(plan, self._folding(between, affords), self._reader.read)
        finally:
            self._reader._known = {}

    def compact(self, view: View, *, retain: int, slack: int = 20) -> None:
        """Plan and fold at once."""
        plan = self.plan(view, retain=retain, slack=slack)
        if plan is not None:
            self._carry_out(plan, self._folding(), self.read)

    def _carry_out(self, plan: FoldingPlan, folding: Folding, read: Callable[[], View]) -> None:
        """Fold. The loss of a segment stops nothing: memory has the whole state, and the next plan writes it anew."""
        try:
            folding.fold(plan, read)
            if plan.whole is not None:
                folding.check_segments()
        except SegmentLost as lost:
            if not self._is_segment_lost:
                log.error("part of the sinks' state was lost: %s", lost, extra={"journal": self.path})
            self._is_segment_lost = True
            return
        if self._is_segment_lost:
            log.warning("the sinks' state was written anew, from memory", extra={"journal": self.path})
        self._is_segment_lost = False

    def _folding(
        self, between: Callable[[], None] = lambda: None, affords: Callable[[float], bool] = lambda _: True
    ) -> Folding:
        knobs = self._policy.tuned(self._gauge.measured)
        return Folding(self._files, self.path, self.now, knobs, self._clock, between, affords, self._gauge)

    @property
    def measured(self) -> Measured:
        """What was measured while this journal was read and folded."""
        return self._gauge.measured

    @property
    def recovery(self) -> float | None:
        """The seconds that it took this process to read records and segments; None if there were no segments."""
        return self._gauge.recovery

    @property
    def share(self) -> float | None:
        """The share of a processor that merging may take; None if it is not limited."""
        return self._policy.cpu

    def extent(self) -> Extent:
        """What a recovery would read now, as of the last reading."""
        view, record = self._view, self._view.state_record
        listed = record.segments if record is not None else ()
        oldest = listed[0].through if listed else view.floor
        newer = [n for n in self._sizes if (epoch := epoch_of_name(n)) is None or epoch > view.stored_through]
        return Extent(
            live=sum(len(state) for state in view.sink_states().values()),
            entries=sum(ref.entries for ref in listed),
            bytes=sum(ref.bytes for ref in listed),
            segments=len(listed),
            epochs=max(0, view.done_through - oldest),
            changes=sum(self._changes.get(n, 0) for n in newer),
            record_bytes=sum(self._sizes.values()),
        )

    def sweep(self) -> list[str]:
        """Remove the temporary files of writers that died; a live writer creates its file again."""
        return sweep(self._files, self.path)

    def _is_incomplete(self, names: list[str]) -> bool:
        """Whether a listing lacks records but not yet has the snapshot that covers them: it overlapped with a purge.

        The snapshot exists before the first record is removed, so the next listing has it.
        """
        if self._seen and self._seen.keys() <= set(names):
            return False
        return [n for n in self._names() if n[0] in "sm"] != [n for n in names if n[0] in "sm"]

    def _names(self) -> list[str]:
        """The names of records, and of what does not belong here."""
        names = self._files.names(self.path)
        return [n for n in names if not n.startswith(TEMPORARY) and number_of_segment(n) is None]

    def _restored(self, records: Iterable[Record], *, last_try: bool) -> States | None:
        """The states that the newest state record lists; None if there is none, or newer states are known.

        FileNotFoundError if a segment is gone; JournalCorrupt if it is gone at the last try too.
        """
        state_records = [record for record in records if isinstance(record, StateRecord)]
        newest = max(state_records, key=lambda record: record.number, default=None)
        if newest is None or not self._with_states:
            return None
        if self._settled is not None and self._settled.epoch > newest.through:
            return None
        if self._stored is None or self._stored[0] != newest.name:
            try:
                with self._gauge.restoring(sum(ref.entries for ref in newest.segments)):
                    restored = SegmentFiles(self._files, self.path).restore(newest.segments)
            except FileNotFoundError as fault:
                if not last_try:
                    raise
                raise missing(str(fault.filename or fault)) from None
            self._stored = newest.name, {sink: SinkState(state) for sink, state in restored.items()}
        return self._stored[1]

    def _create(self, record: Record, *, durable: bool = True) -> bool:
        data = encode(record)
        created = self._files.create(join(self.path, record.name), data, durable=durable)
        # A start is read back all the same: if it is ours, the journal has not been replaced.
        if created and not isinstance(record, GenerationStarted):
            self._created[record.name] = data
        return created

    def _records(self, names: list[str]) -> dict[str, Record] | None:
        """The records with these names, or None if one was folded away between listing and reading."""
        records, begun, size = {}, time.monotonic(), 0
        for name in names:
            record = self._seen.get(name) or self._known.get(name)
            if record is None:
                path = join(self.path, name)
                try:
                    data = self._created.get(name) or self._files.read(path)
                    record = decode(path, name, data)
                    size += len(data)
                    self._note(name, record, len(data))
                except FileNotFoundError:
                    return None
                except IsADirectoryError:
                    raise JournalCorrupt(f"{path}: a folder does not belong in a journal; move it away") from None
            records[name] = record
        self._gauge.decoded(size, time.monotonic() - begun)
        return records

    def _note(self, name: str, record: Record, size: int) -> None:
        """Note the size of a record, and how much of the sinks' state it changes."""
        self._sizes[name] = size
        if isinstance(record, Prepared | Roll):
            changes = sum(len(staged.changes) for staged in record.sinks.values())
            self._changes[name] = changes
            self._gauge.changed(changes)


def scratch_beside(journal: str) -> str:
    """The folder beside a journal for stores that have no place for staged files; all incarnations share it."""
    return f"{journal.rstrip('/')}-staged"


def _slim(record: Record, view: View) -> Record:
    """A record without the parts that are not read again once its epoch is done."""
    last = view.done_through
    match record:
        case Prepared() if record.epoch <= last:
            return _without_payload(record)
        case Roll() if record.after < last and (record.generation, record.number) in view.carried_out:
            return _without_payload(record)
        case Snapshot() if record.kept and record.through < last:
            return replace(record, kept={})
    return record


def _without_payload(record: Prepared | Roll) -> Prepared | Roll:
    if all(staged.handle is SPENT for staged in record.sinks.values()):
        return record
    spent = {
        name: Staged(SPENT, staged.rows, digest=staged.digest, bytes=staged.bytes)
        for name, staged in record.sinks.items()
    }
    return replace(record, sinks=spent)
