"""Compares a table with the journal. Reads only.

First by the log alone: each epoch must be in it once. Then by rows, file by file in one job: each file belongs to the
epoch whose entry added it. Epochs whose files were rewritten since (OPTIMIZE, DELETE), or whose columns were changed,
are read at the last version that has them unchanged, one job for each such version. If no other program has written
to the table, the sum over all rows proves the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from epochal.sinks.delta.audit.history import History
from epochal.sinks.delta.audit.rows import Rows
from epochal.sinks.delta.commit import Committer, Table, last_epoch
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table import log
from epochal.sinks.storage.hadoop import session_for
from epochal.txn.audit import ROWS_NOT_READ, Difference, Scope, StoreReport
from epochal.txn.audit_comparison import row_difference
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.row_digests import RowDigest, total

UPSERT = (
    "rows that an upsert has written may have been updated or deleted since: the audit checked only that each epoch is "
    "in the table's log once"
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
    _ambiguous: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    def audit(self, scope: Scope) -> StoreReport:
        scope.progress(f"reading the log of {self.layout.target}")
        table, state = self.committer.table()
        if state is None:
            if scope.expected.count:  # before the first epoch it may not exist yet
                self._differences.append(Difference("the table is gone"))
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
            self._unproven.append(ROWS_NOT_READ)
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
        epochs: Mapping[int, RowDigest] | None = None,
        whole: RowDigest | None = None,
        only_from: int | None = None,
    ) -> StoreReport:
        return StoreReport(
            epochs_present=landed,
            complete_from=seen_from,
            epochs=epochs or {},
            total=whole,
            only_from=only_from,
            differences=tuple(self._differences),
            unproven=tuple(self._unproven),
            ambiguous=tuple(self._ambiguous),
            notes=tuple(self._notes),
        )

    def _check_log(self, scope: Scope, history: History, last: int) -> None:
        for epoch, entries in sorted(history.all_epochs.items()):
            if len(entries) > 1:
                said = " and ".join(entry.label for entry in entries)
                self._differences.append(Difference(f"is in the table's log {len(entries)} times: {said}", epoch))
        for epoch, entry in sorted(history.taken_out().items()):
            what = f"was taken out of the table by {entry.label}" + (
                "" if entry.restored is None else f", which brought back version {entry.restored}"
            )
            self._differences.append(Difference(what, epoch))
        if last < scope.expected.last:
            self._differences.append(
                Difference(
                    f"is done in the journal, but the last epoch by the table's transaction id is {last}",
                    scope.expected.last,
                )
            )

    def _check_files(self, table: Table, history: History) -> None:
        """Every file of this stream that readers see must exist, with the length that the log records."""
        for path, size in table.live():
            name = log.last_part(path)
            epoch = history.owner.get(name)
            if epoch is None or "://" in path or path.startswith("/"):
                continue
            length = self.files.length(join(self.layout.target, unquote(path)))
            if length is None:
                length = self.files.length(join(self.layout.target, path))  # for logs that do not escape names
            if length != size:
                what = "is missing" if length is None else f"has {length} bytes"
                self._differences.append(Difference(f"{what}, and the table's log says {size} bytes", epoch, name))

    def _complete(self, rows: Rows, landed: frozenset[int], seen_from: int) -> StoreReport:
        """Each epoch replaced all rows: the table has only those of the last one."""
        history = rows.history
        last = max(landed, default=None)
        if last is None:
            return self._found(landed, seen_from)
        since = [e for e in history.entries if e.version > history.epochs[last].version and e.changes]
        version = since[0].version - 1 if since else history.version
        if since and since[0].epoch is None:
            self._notes.append(f"{since[0].label} has changed the table since: the audit read the version before it")
        row_digests = self._read(rows, version)
        if row_digests is None:
            return self._found(landed, seen_from, only_from=last)
        return self._found(landed, seen_from, {last: total(row_digests.values())}, only_from=last)

    def _append(self, rows: Rows, landed: frozenset[int], seen_from: int) -> StoreReport:
        history = rows.history
        epochs: dict[int, RowDigest] = {}
        whole = None
        live = self._read(rows, history.version)
        if live is not None:
            if history.is_alone and max(history.epochs, default=0) <= rows.scope.expected.through:
                whole = total(live.values())
            self._look_for_repeats(rows, set(live))
        for version, numbers in sorted(_grouped(history, landed).items(), reverse=True):
            if version == history.version:
                row_digests = live
            elif whole is not None and not row_difference(rows.scope.expected.total, whole):
                continue  # the sum over all rows has proven it
            else:
                row_digests = self._read(rows, version, numbers)
            if row_digests is None:
                continue
            if version != history.version:
                (later,) = (entry.label for entry in history.entries if entry.version == version + 1)
                self._notes.append(
                    f"{later} has rewritten rows of {len(numbers)} epochs: the audit read the version before it"
                )
            for epoch in numbers:
                epochs[epoch] = total(row_digests.get(name, RowDigest()) for name in history.epochs[epoch].added)
        return self._found(landed, seen_from, epochs, whole)

    def _read(self, rows: Rows, version: int, epochs: Sequence[int] = ()) -> dict[str, RowDigest] | None:
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
                self._ambiguous.append(
                    f"{span}: rewritten since, and version {version} cannot be read any more ({reason})"
                )
        return None

    def _look_for_repeats(self, rows: Rows, live: set[str]) -> None:
        """Check whether other programs have appended rows of this stream once more."""
        appends = rows.history.other_appends
        if not appends:
            return
        own = {name for name in rows.history.owner if name in live}
        names = {name: entry for entry in appends for name in entry.added if name in live}
        repeated = rows.repeats(set(names), own) if names else {}
        for entry in appends:
            counts = [repeated.get(name, (0, 0)) for name in entry.added]
            count, same = sum(c for c, _ in counts), sum(s for _, s in counts)
            if not entry.added <= live:
                self._unproven.append(f"{entry.label} appended rows that no stream of epochal wrote, rewritten since")
            elif count and same == count:
                what = f"appended {count} rows that no stream of epochal wrote, and each equals a row of this stream"
                self._differences.append(Difference(f"{entry.label} {what}"))
            elif same:
                self._unproven.append(
                    f"{entry.label} appended {count} rows that no stream of epochal wrote; {same} of them are equal "
                    "to rows of this one"
                )
            else:
                self._notes.append(
                    f"{entry.label} appended {count} rows that no stream of epochal wrote: other programs write here"
                )


def _grouped(history: History, landed: frozenset[int]) -> dict[int, list[int]]:
    """Epochs by the version at which they are read."""
    by_version: dict[int, list[int]] = {}
    for epoch in sorted(landed):
        by_version.setdefault(history.unchanged_until(epoch), []).append(epoch)
    return by_version
