"""The journal: a folder of small immutable records, each made by create-if-absent.

Reading lists the folder and reads the records not seen before: records never change, so each is read
once. Reading while others write is safe because a record is complete before it gets its name. A listing
may race with a compaction; the snapshot always exists before the first record that it covers is removed.

For an epoch that is done, memory holds only the counts: its handles are no longer needed, and its changes
are part of the states computed from it. So memory holds what is open once, not once for each epoch.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterable
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
    attempt_name,
    decode,
    encode,
    epoch_of_name,
    generation_of_name,
    is_record_name,
)
from epochal.txn.view import KEEP_GENERATIONS, StatesAt, View, fold

SPENT = Handle(0, {})  # replaces the handle of an epoch that is done; no participant accepts its version


class Journal:
    """The records of one lineage."""

    def __init__(self, files: Files, path: str, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._files = files
        self._clock = clock
        self._seen: dict[str, Record] = {}
        self._created: dict[str, bytes] = {}  # by this process, not yet in a listing: these need not be read
        self._view = fold(())
        self._settled: StatesAt | None = None

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
            names = [n for n in self._files.names(self.path) if not n.startswith(TEMPORARY)]
            if names == list(self._seen):
                return self._view
            records = self._records(names)
            if records is None:
                continue
            try:
                view = fold(records.values(), self._settled)
            except JournalCorrupt as fault:
                # A listing that overlaps another driver's purge can show half an epoch; read again.
                if tries_left:
                    continue
                raise JournalCorrupt(f"{self.path}: {fault}") from None
            if self._is_incomplete(names):
                continue
            if self._settled is not None and view.done_through < self._settled.epoch:
                # The journal was replaced: forget everything read so far.
                self._seen, self._settled, self._view = {}, None, fold(())
                continue
            self._settled = view.settled_states
            self._seen, self._view = {n: _slim(r, view) for n, r in records.items()}, view
            self._created.clear()  # also what was folded away before it was listed
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

    def compact(self, view: View, *, retain: int, slack: int = 20) -> None:
        """Fold all but the newest `retain` done epochs away, once there are `slack` more than that."""
        through = view.done_through - retain
        unfolded = sum(1 for epoch in view.done if epoch > view.floor)
        if through <= view.floor or unfolded < retain + slack:
            return
        failpoints.hit("before-snapshot")
        self._create(Snapshot(through, self.now(), view.states_for_snapshot(), view.totals(through=through)))
        failpoints.hit("after-snapshot")
        self.purge(through)

    def purge(self, through: int) -> None:
        """Remove the records that a snapshot covers. Repeatable: what a crash leaves is removed the next time."""
        view = self.read()  # again: others may have started and rolled since the snapshot was planned
        names = [n for n in self._files.names(self.path) if is_record_name(n)]
        removable = _removable_generations(view, through)
        generations = [n for n in names if generation_of_name(n) in removable]
        covered = [n for n in names if (epoch := epoch_of_name(n)) is not None and epoch <= through]
        older = [n for n in names if n.startswith("s") and int(n[1:13]) < through]
        failpoints.hit("before-purge")
        # Remove a generation before the seal of its rolls: a roll of a removed generation does not count.
        for name in (*covered, *older, *generations, *_removable_rolls(view, names, through, removable)):
            self._files.delete(join(self.path, name))
        failpoints.hit("after-purge")

    def sweep(self) -> list[str]:
        """Remove the temporary files of writers that died; a live writer creates its file again."""
        return sweep(self._files, self.path)

    def _is_incomplete(self, names: list[str]) -> bool:
        """Whether a listing lacks records but not yet has the snapshot that covers them: it overlapped with a purge.

        The snapshot exists before the first record is removed, so the next listing has it.
        """
        if self._seen and self._seen.keys() <= set(names):
            return False
        return [n for n in self._files.names(self.path) if n.startswith("s")] != [n for n in names if n.startswith("s")]

    def _create(self, record: Record, *, durable: bool = True) -> bool:
        data = encode(record)
        created = self._files.create(join(self.path, record.name), data, durable=durable)
        # A start is read back all the same: if it is ours, the journal has not been replaced.
        if created and not isinstance(record, GenerationStarted):
            self._created[record.name] = data
        return created

    def _records(self, names: list[str]) -> dict[str, Record] | None:
        """The records with these names, or None if one was folded away between listing and reading."""
        records = {}
        for name in names:
            record = self._seen.get(name)
            if record is None:
                path = join(self.path, name)
                try:
                    record = decode(path, name, self._created.get(name) or self._files.read(path))
                except FileNotFoundError:
                    return None
                except IsADirectoryError:
                    raise JournalCorrupt(f"{path}: a folder does not belong in a journal; move it away") from None
            records[name] = record
        return records


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


def _removable_generations(view: View, through: int) -> set[int]:
    """The starts that may be removed: old, and not needed to find the sinks of what is open or was rolled lately.

    In a stream that rolls, a generation whose rolls are not sealed stays: it might still record one.
    """
    needed = {r.generation for r in view.recorded_rolls() if r.after > through} | view.generations_with_open_rows()
    needed |= {g for e in view.attempts if e > through for g in view.prepared(e)}  # a commit needs their sinks
    old = sorted(view.generations)[:-KEEP_GENERATIONS]
    return {n for n in old if n not in needed and not (view.may_roll and view.next_roll(n) is not None)}


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
