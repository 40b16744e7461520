"""Is a table what the journal says? Reads only.

By the log alone: each epoch is in it once. Then by rows, file by file in one job: each file belongs to the epoch whose
entry added it. Epochs whose files were rewritten since (OPTIMIZE, DELETE), or whose columns were changed, are read at
the last version that has them as they were, one job for each such version. If nobody else has written to the table,
the sum of all rows proves as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from epochal.sinks import digests
from epochal.sinks.delta import digesting, log
from epochal.sinks.delta.committing import Committer, Table, last_epoch
from epochal.sinks.delta.gate import TableState
from epochal.sinks.delta.jvm import SparkTable
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.log import RESTORE, LogEntry
from epochal.sinks.hadoop import session_for
from epochal.txn.audit import Difference, Found, Scope, compare
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.tallies import Tally, total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UPSERT = (
    "rows that an upsert has written may have been updated or deleted since: only that each epoch is in the table's "
    "log once was looked at"
)


@dataclass
class Auditor:
    """Audits one lineage in one table."""

    files: Files
    layout: Layout
    committer: Committer
    mode: str
    _differences: list[Difference] = field(default_factory=list)
    _unproven: list[str] = field(default_factory=list)
    _untold: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    def audit(self, scope: Scope) -> Found:
        scope.told(f"reading the log of {self.layout.target}")
        table, state = self.committer.table()
        if state is None:
            if scope.expected.count:  # before the first epoch it may not have been made yet
                self._differences.append(Difference("there is no table any more"))
            return self._found(frozenset(), 0)
        entries = [entry for entry in log.read(self.files, self.layout.log) if entry.version <= state.version]
        history = History(scope.lineage, entries, state)
        self._check_log(scope, history, last_epoch(table, state, scope.lineage))
        landed = frozenset(epoch for epoch in history.epochs if epoch <= scope.expected.through)
        seen_from = history.seen_from(scope.expected.last)
        if self.mode == "upsert":
            self._unproven.append(UPSERT)
            return self._found(landed, seen_from)
        self._check_files(table, history)
        if scope.fast:
            self._unproven.append("rows were not read")
            return self._found(landed, seen_from)
        try:
            spark = self.committer.spark(session_for(self.layout.target))
        except Refused as fault:
            self._unproven.append(f"rows were not read: {fault}")
            return self._found(landed, seen_from)
        rows = Rows(spark, history, scope)
        if self.mode == "complete":
            return self._complete(rows, landed, seen_from)
        return self._append(rows, landed, seen_from)

    def _found(
        self,
        landed: frozenset[int],
        seen_from: int,
        epochs: Mapping[int, Tally] | None = None,
        whole: Tally | None = None,
        only_from: int | None = None,
    ) -> Found:
        return Found(
            landed=landed,
            seen_from=seen_from,
            epochs=epochs or {},
            total=whole,
            only_from=only_from,
            differences=tuple(self._differences),
            unproven=tuple(self._unproven),
            untold=tuple(self._untold),
            notes=tuple(self._notes),
        )

    def _check_log(self, scope: Scope, history: History, last: int) -> None:
        for epoch, entries in sorted(history.all_epochs.items()):
            if len(entries) > 1:
                said = " and ".join(entry.said for entry in entries)
                self._differences.append(Difference(f"is in the table's log {len(entries)} times: {said}", epoch))
        for epoch, entry in sorted(history.taken_out().items()):
            what = f"was taken out of the table by {entry.said}" + (
                "" if entry.restored is None else f", which brought back version {entry.restored}"
            )
            self._differences.append(Difference(what, epoch))
        if last < scope.expected.last:
            self._differences.append(
                Difference(f"is done, and the last epoch by the table's transaction id is {last}", scope.expected.last)
            )

    def _check_files(self, table: Table, history: History) -> None:
        """Every file of ours that readers see is there, as long as the log says."""
        for path, size in table.live():
            name = log.last_part(path)
            epoch = history.owner.get(name)
            if epoch is None or "://" in path or path.startswith("/"):
                continue
            length = self.files.length(join(self.layout.target, unquote(path)))
            if length is None:
                length = self.files.length(join(self.layout.target, path))  # where the log's names are not escaped
            if length != size:
                what = "is gone" if length is None else f"has {length} bytes"
                self._differences.append(Difference(f"{what}, and the table's log says {size} bytes", epoch, name))

    def _complete(self, rows: Rows, landed: frozenset[int], seen_from: int) -> Found:
        """Each epoch took the place of all rows: only the last one's are there."""
        history = rows.history
        last = max(landed, default=None)
        if last is None:
            return self._found(landed, seen_from)
        since = [e for e in history.entries if e.version > history.epochs[last].version and e.changes]
        version = since[0].version - 1 if since else history.version
        if since and since[0].epoch is None:
            self._notes.append(f"{since[0].said} has changed the table since: it was read as it was before")
        tallies = self._read(rows, version)
        if tallies is None:
            return self._found(landed, seen_from, only_from=last)
        return self._found(landed, seen_from, {last: total(tallies.values())}, only_from=last)

    def _append(self, rows: Rows, landed: frozenset[int], seen_from: int) -> Found:
        history = rows.history
        epochs: dict[int, Tally] = {}
        whole = None
        live = self._read(rows, history.version)
        if live is not None:
            if history.is_alone and max(history.epochs, default=0) <= rows.scope.expected.through:
                whole = total(live.values())
            self._look_for_repeats(rows, set(live))
        for version, numbers in sorted(_grouped(history, landed).items(), reverse=True):
            if version == history.version:
                tallies = live
            elif whole is not None and not compare(rows.scope.expected.total, whole):
                continue  # the sum has proven it
            else:
                tallies = self._read(rows, version, numbers)
            if tallies is None:
                continue
            if version != history.version:
                (later,) = (entry.said for entry in history.entries if entry.version == version + 1)
                self._notes.append(
                    f"{later} has rewritten rows of {len(numbers)} epochs: they were read as they were before"
                )
            for epoch in numbers:
                epochs[epoch] = total(tallies.get(name, Tally()) for name in history.epochs[epoch].added)
        return self._found(landed, seen_from, epochs, whole)

    def _read(self, rows: Rows, version: int, epochs: Sequence[int] = ()) -> dict[str, Tally] | None:
        """The rows of each file at a version; None if it cannot be read any more."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return rows.by_file(version)
        except (PySparkException, Py4JError) as fault:
            reason = str(fault).strip().partition("\n")[0][:200]
            if version == rows.history.version:
                self._differences.append(Difference(f"the table cannot be read: {reason}"))
            else:
                span = f"epochs {min(epochs)} to {max(epochs)}" if epochs else "the last epoch"
                self._untold.append(
                    f"{span}: rewritten since, and version {version} cannot be read any more ({reason})"
                )
        return None

    def _look_for_repeats(self, rows: Rows, live: set[str]) -> None:
        """What others have appended since the stream began: are they rows of this stream once more?"""
        appends = rows.history.foreign_appends
        if not appends:
            return
        own = {name for name in rows.history.owner if name in live}
        names = {name: entry for entry in appends for name in entry.added if name in live}
        repeated = rows.repeats(set(names), own) if names else {}
        for entry in appends:
            counts = [repeated.get(name, (0, 0)) for name in entry.added]
            count, same = sum(c for c, _ in counts), sum(s for _, s in counts)
            if not entry.added <= live:
                self._unproven.append(f"{entry.said} appended rows that no stream of epochal's gave, rewritten since")
            elif count and same == count:
                what = f"{entry.said} appended {count} rows that no stream of epochal's gave, and each is a row of it"
                self._differences.append(Difference(what))
            elif same:
                self._unproven.append(
                    f"{entry.said} appended {count} rows that no stream of epochal's gave; {same} of them are equal to "
                    "rows of this one"
                )
            else:
                self._notes.append(
                    f"{entry.said} appended {count} rows that no stream of epochal's gave: others write here"
                )


@dataclass
class History:
    """What the log says of one lineage."""

    lineage: str
    entries: Sequence[LogEntry]
    state: TableState

    def __post_init__(self) -> None:
        self.all_epochs: dict[int, list[LogEntry]] = {}
        for entry in self.entries:
            if self.lineage in entry.transactions:
                self.all_epochs.setdefault(entry.transactions[self.lineage], []).append(entry)
        self.epochs = {epoch: entries[0] for epoch, entries in self.all_epochs.items()}
        self.owner = {name: epoch for epoch, entry in self.epochs.items() for name in entry.added}
        self.schemas = [(entry.version, entry.schema) for entry in self.entries if entry.schema is not None]

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def is_whole(self) -> bool:
        """Whether the log goes back to the table's beginning."""
        return bool(self.entries) and self.entries[0].version == 0

    def taken_out(self) -> dict[int, LogEntry]:
        """The epochs that are in the log and not in the table, each with the RESTORE that took it out.

        Delta keeps its transaction ids, so that nothing else tells. A RESTORE by time does not say to which version;
        what it did is seen by the rows.
        """
        at: dict[int, frozenset[int]] = {}  # version -> the epochs in the table then
        gone: dict[int, LogEntry] = {}
        now: frozenset[int] = frozenset()
        epochs = {entry.version: epoch for epoch, entry in self.epochs.items()}
        for entry in self.entries:
            if entry.version in epochs:
                now |= {epochs[entry.version]}
            elif entry.operation == RESTORE and entry.restored in at:
                before = at[entry.restored]
                gone |= dict.fromkeys(now - before, entry)
                now = before
            at[entry.version] = now
        return {epoch: entry for epoch, entry in gone.items() if epoch not in now}

    def seen_from(self, last: int) -> int:
        """The first epoch that would be in this log."""
        return 0 if self.is_whole else min(self.epochs, default=last + 1)

    @property
    def is_alone(self) -> bool:
        """Whether all rows are this lineage's, as it gave them."""
        ours = {entry.version for entry in self.epochs.values()}
        others = any(entry.changes and (entry.version not in ours or entry.removed) for entry in self.entries)
        return self.is_whole and not others and all(digesting.is_kept(s, self.state.schema) for _, s in self.schemas)

    @property
    def foreign_appends(self) -> list[LogEntry]:
        """What others have added since the first epoch, apart from streams of epochal's."""
        first = min((entry.version for entry in self.epochs.values()), default=self.version)
        ours = {entry.version for entries in self.all_epochs.values() for entry in entries}
        return [
            entry
            for entry in self.entries
            if entry.version > first and entry.version not in ours and entry.epoch is None
            if entry.changes and entry.added and not entry.removed
        ]

    def schema_at(self, version: int) -> Mapping[str, Any]:
        known = [schema for at, schema in self.schemas if at <= version]
        return known[-1] if known and version < self.version else self.state.schema

    def kept_until(self, epoch: int) -> int:
        """The last version that has the epoch's files as they were, under columns that give the same digest."""
        entry = self.epochs[epoch]
        before = self.schema_at(entry.version)
        for later in self.entries:
            if later.version <= entry.version:
                continue
            changed = later.schema is not None and not digesting.is_kept(before, later.schema)
            if changed or later.removed & entry.added:
                return later.version - 1
        return self.version


@dataclass
class Rows:
    """A table's rows at its versions."""

    table: SparkTable
    history: History
    scope: Scope

    def by_file(self, version: int) -> dict[str, Tally]:
        self.scope.told(f"reading version {version} of the table")
        frame = self.table.at(version)
        partition_by = self.history.state.partition_by
        measure = digesting.measure(frame.schema, self.history.schema_at(version), partition_by)
        return {name: digests.tally(sums) for name, sums in digests.by_file(frame, measure).items()}

    def repeats(self, foreign: set[str], own: set[str]) -> dict[str, tuple[int, int]]:
        """Of files that others have added: how many rows, and how many that are equal to a row of ours."""
        from pyspark.sql import functions as f

        frame = self._hashed()
        theirs = frame.where(frame["file"].isin(sorted(foreign)))
        ours = frame.where(frame["file"].isin(sorted(own))).select(f.col("hash").alias("known")).distinct()
        joined = theirs.join(ours, theirs["hash"] == ours["known"], "left")
        counted = joined.groupBy("file").agg(f.count(f.lit(1)).alias("rows"), f.count("known").alias("same")).collect()
        return {row["file"]: (int(row["rows"]), int(row["same"])) for row in counted}

    def _hashed(self) -> DataFrame:
        frame = self.table.at(self.history.version)
        row = digesting.row_hash(frame.schema, self.history.state.schema, self.history.state.partition_by)
        return frame.select(digests.file_of(frame).alias("file"), row.alias("hash"))


def _grouped(history: History, landed: frozenset[int]) -> dict[int, list[int]]:
    """Epochs by the version at which they are to be read."""
    found: dict[int, list[int]] = {}
    for epoch in sorted(landed):
        found.setdefault(history.kept_until(epoch), []).append(epoch)
    return found
