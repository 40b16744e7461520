"""The journal: a folder of small immutable records, each made by create-if-absent.

Reading is a listing plus the records not seen before: records never change, so each is read once.
Reading while others write is safe because a record is whole before it has its name. A listing may
race with a compaction; the snapshot that covers the removed records is always there before the
first of them goes.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Sequence

from epochal.txn import failpoints
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, join
from epochal.txn.records import (
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Record,
    Roll,
    Seal,
    Snapshot,
    attempt_name,
    decode,
    encode,
    epoch_of_name,
    is_record_name,
)
from epochal.txn.view import View, fold

KEEP_GENERATIONS = 8


class Journal:
    """The records of one lineage."""

    def __init__(self, files: Files, path: str, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._files = files
        self._clock = clock
        self._seen: dict[str, Record] = {}
        self._view = fold(())

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
                view = fold(records.values())
            except JournalCorrupt as fault:
                # A listing that overlaps another driver's purge can show half an epoch; look again.
                if tries_left:
                    continue
                raise JournalCorrupt(f"{self.path}: {fault}") from None
            self._seen, self._view = records, view
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
        self._create(Snapshot(through, self.now(), view.all_kept(through=through)))
        failpoints.hit("after-snapshot")
        self.purge(through, [roll for rolls in view.rolls.values() for roll in rolls.values()])

    def purge(self, through: int, rolls: Sequence[Roll]) -> None:
        """Remove what a snapshot covers. Repeatable: a crash in between leaves more for the next time."""
        names = [n for n in self._files.names(self.path) if is_record_name(n)]
        needed = {r.generation for r in rolls if r.after > through and not r.is_seal}
        generations = sorted(n for n in names if n.startswith("g"))[:-KEEP_GENERATIONS]
        generations = [n for n in generations if int(n[1:7]) not in needed]
        covered = [n for n in names if (epoch := epoch_of_name(n)) is not None and epoch <= through]
        older = [n for n in names if n.startswith("s") and int(n[1:13]) < through]
        failpoints.hit("before-purge")
        for name in (*covered, *older, *generations, *_spent_rolls(rolls, through, generations)):
            self._files.delete(join(self.path, name))
        failpoints.hit("after-purge")

    def sweep(self) -> list[str]:
        """Remove the temporary files of writers that died; a live one makes its file again."""
        stray = [n for n in self._files.names(self.path) if n.startswith(TEMPORARY)]
        for name in stray:
            self._files.delete(join(self.path, name))
        return stray

    def _create(self, record: Record, *, durable: bool = True) -> bool:
        return self._files.create(join(self.path, record.name), encode(record), durable=durable)

    def _records(self, names: list[str]) -> dict[str, Record] | None:
        """The records of these names, or None if one was folded away between listing and reading."""
        records = {}
        for name in names:
            record = self._seen.get(name)
            if record is None:
                path = join(self.path, name)
                try:
                    record = decode(path, name, self._files.read(path))
                except FileNotFoundError:
                    return None
                except IsADirectoryError:
                    raise JournalCorrupt(f"{path}: a folder is no part of a journal; move it away") from None
            records[name] = record
        return records


def _spent_rolls(rolls: Sequence[Roll], through: int, gone: Iterable[str]) -> list[str]:
    """The names of rolls that are folded away. A generation's last one stays as long as its start: it says what comes
    next, or that nothing does.
    """
    last: dict[int, int] = {}
    for r in rolls:
        last[r.generation] = max(r.number, last.get(r.generation, 0))
    without = {int(name[1:7]) for name in gone}
    return [r.name for r in rolls if r.after <= through and (r.generation in without or r.number != last[r.generation])]
