"""The journal: a folder of small immutable records, each made by create-if-absent.

Reading is a listing plus the records not seen before: records never change, so each is read once.
Reading while others write is safe because a record is whole before it has its name. A listing may
race with a compaction; the snapshot that covers the removed records is always there before the
first of them goes.

Of an epoch that is done only the counts stay in memory: its handles are spent, and its changes are in
the states that were computed from it. So memory holds what is open once, not once for each epoch.
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

SPENT = Handle(0, {})  # stands for the handle of an epoch that is done; no participant accepts its version


class Journal:
    """The records of one lineage."""

    def __init__(self, files: Files, path: str, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._files = files
        self._clock = clock
        self._seen: dict[str, Record] = {}
        self._made: dict[str, bytes] = {}  # by us, and not seen in a listing yet: these need not be read
        self._view = fold(())
        self._settled: StatesAt | None = None

    @cached_property
    def place(self) -> str:
        """Where it is, however it was spelled: what a target is bound to."""
        return os.path.realpath(local_path(self.path)) if is_local(self.path) else self.path

    @property
    def view(self) -> View:
        """What the journal said when it was last read."""
        return self._view

    def now(self) -> str:
        """The time as records carry it, for people only: no decision reads it."""
        return datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).isoformat(timespec="milliseconds")

    def read(self) -> View:
        """Everything the journal says now."""
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
                # A listing that overlaps another driver's purge can show half an epoch; look again.
                if tries_left:
                    continue
                raise JournalCorrupt(f"{self.path}: {fault}") from None
            if self._is_torn(names):
                continue
            if self._settled is not None and view.done_through < self._settled.epoch:
                # The journal was replaced: nothing that is known of it holds.
                self._seen, self._settled, self._view = {}, None, fold(())
                continue
            self._settled = view.settled_states
            self._seen, self._view = {n: _slim(r, view) for n, r in records.items()}, view
            self._made.clear()  # what was folded away before it was seen is of no use either
            return view
        raise JournalCorrupt(f"{self.path}: records vanish while they are read; is something else cleaning it?")

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
        """Record what was closed between two epochs; False if a newer generation has sealed it."""
        failpoints.hit("before-roll")
        created = self._create(record)
        failpoints.hit("after-roll")
        return created

    def seal_rolls(self, generation: int, *, by: int) -> None:
        """Take the number after an older generation's last roll, so that it can record no other."""
        while (number := self.read().next_roll(generation)) is not None:
            failpoints.hit("before-roll-seal")
            self._create(Roll(generation, number, by, self.read().done_through, {}, self.now()))
            failpoints.hit("after-roll-seal")

    def finish_roll(self, record: Roll) -> None:
        """Record that every sink shows what was closed. Not durable, as DONE: else it is carried out once more."""
        failpoints.hit("before-rolled")
        self._create(Rolled(record.generation, record.number, self.now()), durable=False)
        failpoints.hit("after-rolled")

    def attempt(self, epoch: int, generation: int) -> Prepared | Seal | None:
        """The record that holds an attempt's name."""
        name = attempt_name(epoch, generation)
        try:
            record = decode(join(self.path, name), name, self._files.read(join(self.path, name)))
        except FileNotFoundError:
            return None
        assert isinstance(record, Prepared | Seal)  # the name says so and decode compared it
        return record

    def decide(self, epoch: int, generation: int, *, durable: bool = False) -> None:
        """Name the winner, unless somebody has: then theirs stands. Read the view for the answer.

        Need not be durable where Spark's commits/N decides: after a power cut every driver is dead,
        and the same PREPARED records choose again.
        """
        failpoints.hit("before-decided")
        self._create(Decided(epoch, generation, self.now()), durable=durable)
        failpoints.hit("after-decided")

    def finish(self, epoch: int, generation: int) -> None:
        """Record that an epoch is done."""
        failpoints.hit("before-done")
        # Not durable: an epoch that is not known to be done is committed once more, to no effect.
        self._create(Done(epoch, generation, self.now()), durable=False)
        failpoints.hit("after-done")

    def compact(self, view: View, *, retain: int, slack: int = 20) -> None:
        """Fold all but the newest `retain` done epochs away, once `slack` more than that are kept."""
        through = view.done_through - retain
        kept = sum(1 for epoch in view.done if epoch > view.floor)
        if through <= view.floor or kept < retain + slack:
            return
        failpoints.hit("before-snapshot")
        self._create(Snapshot(through, self.now(), view.states_for_snapshot(), view.totals(through=through)))
        failpoints.hit("after-snapshot")
        self.purge(through)

    def purge(self, through: int) -> None:
        """Remove what a snapshot covers. Repeatable: a crash in between leaves more for the next time."""
        view = self.read()  # anew: others may have started and rolled since the snapshot was thought of
        names = [n for n in self._files.names(self.path) if is_record_name(n)]
        spent = _spent_generations(view, through)
        generations = [n for n in names if generation_of_name(n) in spent]
        covered = [n for n in names if (epoch := epoch_of_name(n)) is not None and epoch <= through]
        older = [n for n in names if n.startswith("s") and int(n[1:13]) < through]
        failpoints.hit("before-purge")
        # A generation goes before the seal of its rolls: a roll of a generation that is gone counts for nothing.
        for name in (*covered, *older, *generations, *_spent_rolls(view, names, through, spent)):
            self._files.delete(join(self.path, name))
        failpoints.hit("after-purge")

    def sweep(self) -> list[str]:
        """Remove the temporary files of writers that died; a live one makes its file again."""
        return sweep(self._files, self.path)

    def _is_torn(self, names: list[str]) -> bool:
        """Whether a listing lacks records without the snapshot that covers them: a purge went on while it was made.

        The snapshot was there before the first of them went, so that the next listing has it.
        """
        if self._seen and self._seen.keys() <= set(names):
            return False
        return [n for n in self._files.names(self.path) if n.startswith("s")] != [n for n in names if n.startswith("s")]

    def _create(self, record: Record, *, durable: bool = True) -> bool:
        data = encode(record)
        created = self._files.create(join(self.path, record.name), data, durable=durable)
        # A start is read back all the same: that it is ours tells that nobody has replaced the journal.
        if created and not isinstance(record, GenerationStarted):
            self._made[record.name] = data
        return created

    def _records(self, names: list[str]) -> dict[str, Record] | None:
        """The records of these names, or None if one was folded away between listing and reading."""
        records = {}
        for name in names:
            record = self._seen.get(name)
            if record is None:
                path = join(self.path, name)
                try:
                    record = decode(path, name, self._made.get(name) or self._files.read(path))
                except FileNotFoundError:
                    return None
                except IsADirectoryError:
                    raise JournalCorrupt(f"{path}: a folder is no part of a journal; move it away") from None
            records[name] = record
        return records


def scratch_beside(journal: str) -> str:
    """The folder beside a journal for stores that have no place for staged files; all incarnations share it."""
    return f"{journal.rstrip('/')}-staged"


def _slim(record: Record, view: View) -> Record:
    """A record without what nobody reads again once its epoch is done."""
    last = view.done_through
    match record:
        case Prepared() if record.epoch <= last:
            return _without_payload(record)
        case Roll() if record.after < last and (record.generation, record.number) in view.carried_out:
            return _without_payload(record)
        case Snapshot() if record.kept:
            return replace(record, kept={})
    return record


def _without_payload(record: Prepared | Roll) -> Prepared | Roll:
    if all(staged.handle is SPENT for staged in record.sinks.values()):
        return record
    spent = {name: Staged(SPENT, staged.rows, digest=staged.digest) for name, staged in record.sinks.items()}
    return replace(record, sinks=spent)


def _spent_generations(view: View, through: int) -> set[int]:
    """The starts that nobody needs: neither new, nor to find the sinks of what is open or was rolled lately.

    Where parts are open, a generation whose rolls are not sealed might still record one.
    """
    needed = {r.generation for r in view.rolled() if r.after > through} | view.generations_with_open_rows()
    needed |= {g for e in view.attempts if e > through for g in view.prepared(e)}  # whose sinks a commit asks for
    old = sorted(view.generations)[:-KEEP_GENERATIONS]
    return {n for n in old if n not in needed and not (view.may_roll and view.next_roll(n) is not None)}


def _spent_rolls(view: View, names: Iterable[str], through: int, gone: Iterable[int]) -> list[str]:
    """The names of rolls that are folded away. A generation's last one stays as long as its start: it says what comes
    next, or that nothing does.
    """
    left = view.generations.keys() - set(gone)
    spent: set[str] = set()
    lasting: set[str] = set()
    for generation, rolls in view.rolls.items():
        for roll in rolls.values():
            stays = generation in left and (roll.after > through or roll.number == max(rolls))
            (lasting if stays else spent).add(roll.name)
    # DONE of a roll goes with it, also one that somebody made late: without it a roll is carried out again.
    return [n for n in names if n in spent or (n.endswith(".done.json") and n[0] == "r" and _roll_of(n) not in lasting)]


def _roll_of(done: str) -> str:
    return done.replace(".done.", ".")
