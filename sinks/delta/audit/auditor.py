"""Is a table what the journal says? Reads only.

By the log alone: each epoch is in it once. Then by rows, file by file in one job: each file belongs to the epoch whose
entry added it. Epochs whose files were rewritten since (OPTIMIZE, DELETE), or whose columns were changed, are read at
the last version that has them as they were, one job for each such version. If nobody else has written to the table,
the sum of all rows proves as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from epochal.sinks.delta.audit.history import History
from epochal.sinks.delta.audit.rows import Rows
from epochal.sinks.delta.commit import Committer, Table, last_epoch
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table import log
from epochal.sinks.storage.hadoop import session_for
from epochal.txn.audit import Difference, Found, Scope, compare
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.row_digests import RowDigest, total

if TYPE_CHECKING:
    pass

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
        scope.progress(f"reading the log of {self.layout.target}")
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
        epochs: Mapping[int, RowDigest] | None = None,
        whole: RowDigest | None = None,
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
        epochs: dict[int, RowDigest] = {}
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
                epochs[epoch] = total(tallies.get(name, RowDigest()) for name in history.epochs[epoch].added)
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


def _grouped(history: History, landed: frozenset[int]) -> dict[int, list[int]]:
    """Epochs by the version at which they are to be read."""
    found: dict[int, list[int]] = {}
    for epoch in sorted(landed):
        found.setdefault(history.kept_until(epoch), []).append(epoch)
    return found
