"""The second phase: one log entry with the epoch's files and its transaction id.

The table's own transaction version says whether the epoch is committed. Until it is, a commit may be
repeated from any step: files that were renamed are recognised by name and length, and Delta accepts only one
of two log entries with the same transaction id.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import StagedEpoch, StagedFile
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table import jvm, naming, places
from epochal.sinks.delta.table.commit_notes import committed_epochs, note
from epochal.sinks.delta.table.gate import TableState, why_not_native
from epochal.sinks.delta.table.log import last_part
from epochal.sinks.delta.table.log import read as read_log
from epochal.sinks.delta.table.native import CommitConflict, NativeTable, Unreadable
from epochal.sinks.delta.table.schema import fit
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import session_for
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles, side_by_side
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import PUT_BACK, DataLost, Refused
from epochal.txn.files import LocalFiles, join
from epochal.txn.model import NO_EPOCH, Attempt, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

TRIES = 10
HISTORY = 500  # commits of a table in which this stream's latest epochs are looked up
RETENTION = "delta.setTransactionRetentionDuration"
Table = NativeTable | jvm.SparkTable


def last_epoch(table: Table, state: TableState, lineage: str) -> int:
    """The last epoch of a lineage in the table."""
    last = table.last(lineage)
    if last is None and RETENTION in state.properties:
        # Delta drops transaction ids of this age; the history goes back further.
        last = max((e.epoch for e in committed_epochs(table.commits()) if e.lineage == lineage), default=None)
    return NO_EPOCH if last is None else last


class Committer:
    """Commits staged epochs to one table."""

    def __init__(self, name: str, files: SinkFiles, layout: Layout) -> None:
        places.check_name(name, layout.target)
        self._name, self._files, self._layout = name, files, layout
        self._native = NativeTable(layout.target, files)
        self._spark: jvm.SparkTable | None = None

    def table(self, session: SparkSession | None = None) -> tuple[Table, TableState | None]:
        """The table through delta-rs if that can read it, else through Delta's code; and its state, if it exists."""
        if places.by_delta_rs(self._layout.target):
            try:
                return self._native, self._native_state()
            except Unreadable as fault:
                log.debug("delta-rs could not read the table", extra={"sink": self._name, "error": str(fault)})
        table = self.spark(session)
        return table, table.state()

    def _native_state(self) -> TableState | None:
        state = self._native.state()
        if state is None and places.is_on_store(self._layout.target) and self._files.names(self._layout.log):
            # A table that is taken for a missing one would be created anew, or a decided epoch given up as lost.
            raise OSError(f"{self._layout.target}: delta-rs found no table there, and its log has entries")
        return state

    def can_replace(self) -> bool:
        """Whether delta-rs can put an epoch in place of all rows of the table, as of the state that was read."""
        return self._native.can_replace()

    def spark_writer(self, why: str, session: SparkSession | None = None) -> jvm.SparkTable:
        """The table through Delta's own code, to write to it. Refused where that is not safe; `why` it is needed."""
        if places.is_on_store(self._layout.target):
            raise Refused(
                f"sink {self._name!r}: {self._layout.target}: {why}, and {places.WHY_NOT_SPARK}. Use a table that "
                "delta-rs may commit to (docs/delta.md says which), or one on HDFS or a local disk"
            )
        return self.spark(session)

    def spark(self, session: SparkSession | None = None) -> jvm.SparkTable:
        """The table through Delta's own code."""
        running = session or session_for(self._layout.target)
        if running is None:
            raise Refused(
                f"sink {self._name!r}: {self._layout.target} needs Delta's own code, and so a Spark session, and none "
                "is running. Start the query, or an epochal.session() first"
            )
        if is_connect(running):
            raise Refused(
                f"sink {self._name!r}: {self._layout.target} needs Delta's own code{self._why()}, and so a JVM, which "
                "Spark Connect does not give. Use a classic SparkSession; what is decided is finished by `epochal "
                "recover CHECKPOINT`"
            )
        if self._spark is None or not self._spark.runs_in(running):
            self._spark = jvm.SparkTable(running, spark_path(self._layout.target))
        return self._spark

    def _why(self) -> str:
        """Why delta-rs does not do, as far as the table tells."""
        if not places.by_delta_rs(self._layout.target):
            return " (delta-rs does not reach it)"
        try:
            state = self._native.state()
        except Unreadable as fault:
            return f" ({fault})"
        reason = None if state is None else why_not_native(state, "append")
        return "" if reason is None else f" ({reason})"

    def commit(self, attempt: Attempt, epoch: StagedEpoch) -> Outcome:
        """Commit the epoch, unless the table has it."""
        for file in epoch.files:  # before the first step: a name that leads elsewhere must not stop the commit halfway
            self._layout.staged_file(attempt, file.staged)
            self._layout.data_file(file.new.name)
        conflict = ""
        for _ in range(TRIES):
            table, state = self.table()
            if state is None:
                raise DataLost(
                    f"sink {self._name!r}: there is no Delta table in {self._layout.target} any more. Epoch "
                    f"{attempt.epoch} is decided. {PUT_BACK}"
                )
            if last_epoch(table, state, attempt.lineage) >= attempt.epoch:
                self._check_same(attempt, epoch, table)
                self._put_back(attempt, epoch)
                return Outcome.ALREADY_COMMITTED
            self.check_predecessor(attempt, table, state)
            try:
                if epoch.native and isinstance(table, NativeTable) and self._can_commit_natively(state, epoch):
                    self._commit_native(attempt, epoch)
                else:
                    self._commit_by_spark(attempt, epoch, state)
            except CommitConflict as fault:
                conflict = str(fault)
                log.info("commit conflicted", extra={"sink": self._name, "epoch": attempt.epoch, "error": conflict})
                continue
            return Outcome.COMMITTED
        raise OSError(f"{self._layout.target}: not committed in {TRIES} tries; the last one conflicted: {conflict}")

    def check_predecessor(self, attempt: Attempt, table: Table, state: TableState | None) -> None:
        """An epoch is committed only to a table that has the one before it."""
        last = NO_EPOCH if state is None else last_epoch(table, state, attempt.lineage)
        commit_checks.check_predecessor(self._name, self._layout.target, attempt, lambda epoch: epoch <= last)

    def _check_same(self, attempt: Attempt, epoch: StagedEpoch, table: Table) -> None:
        """The committed epoch must be this attempt: a copy of the journal may have written its own."""
        committed = next(
            (
                e
                for e in committed_epochs(table.commits(HISTORY))
                if (e.lineage, e.epoch) == (attempt.lineage, attempt.epoch)
            ),
            None,
        )
        if committed is None:
            return  # older than the part of the history that is read
        shown = commit_checks.VisibleEpoch(committed.generation, committed.start, committed.offsets)
        where = f"{self._layout.target} (version {committed.version})"
        commit_checks.check_same_attempt(self._name, where, attempt, epoch.offsets, shown)

    def _can_commit_natively(self, state: TableState, epoch: StagedEpoch) -> bool:
        """Whether the table is still one that delta-rs may commit these files to."""
        reason = why_not_native(state, epoch.mode)
        if reason is None and fit(state.schema, epoch.schema, add_columns=False).faults:
            reason = "its columns have changed"
        if reason is None and any(set(f.new.partition) != set(state.partition_by) for f in epoch.files):
            reason = "its partitioning has changed"
        if reason is None and epoch.mode == "complete" and not self._native.can_replace():
            log.debug("delta-rs could not remove files by these names", extra={"sink": self._name})
            return False
        if reason is not None:
            log.warning("table changed since the epoch was staged", extra={"sink": self._name, "reason": reason})
        return reason is None

    def _commit_native(self, attempt: Attempt, epoch: StagedEpoch) -> None:
        self._show(attempt, epoch.files)
        self._check_lengths(attempt, epoch)
        if epoch.files:
            self._files.sync(self._layout.target)
        failpoints.hit("before-log")
        versions = self._native.commit(
            [file.new for file in epoch.files],
            replace=epoch.mode == "complete",
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            note=note(attempt, epoch.offsets),
        )
        failpoints.hit("after-log")
        self._put_back(attempt, epoch)
        self._sync(versions)

    def _put_back(self, attempt: Attempt, epoch: StagedEpoch) -> None:
        """Restore data files that the log names and VACUUM removed, before the staged copies are deleted.

        VACUUM removes files that no log entry names, at once if its retention is zero. It may have removed ours
        between the check of their lengths and the log entry. An interrupted commit may not have come to this check.
        """
        missing = [file for file, length in self._lengths(epoch.files) if length is None]
        if not missing or not epoch.native:
            return
        live = self._live()
        # Others were deleted or rewritten by a later commit; or Delta's own code wrote the rows to other files.
        missing = [file for file in missing if last_part(file.new.name) in live]
        self._show(attempt, missing)
        for file, length in self._lengths(missing):
            path = self._layout.data_file(file.new.name)
            if length is None:
                raise DataLost(
                    f"sink {self._name!r}: {path} is missing, though the table's log names it, and so is the file that "
                    f"was staged for epoch {attempt.epoch}. Another program has removed both: put the file back from a "
                    "copy, or take it out of the log (FSCK, or RESTORE to an earlier version)"
                )
            log.warning("data file restored, another program had removed it", extra={"sink": self._name, "file": path})
        self._files.sync(self._layout.target)

    def _lengths(self, files: Sequence[StagedFile]) -> list[tuple[StagedFile, int | None]]:
        """Each file, with the length that it has in the table's folder."""
        lengths = self._files.lengths([self._layout.data_file(file.new.name) for file in files])
        return list(zip(files, lengths, strict=True))

    def _show(self, attempt: Attempt, files: Sequence[StagedFile]) -> None:
        """Give staged files their names in the table's folder. The staged ones stay until the epoch is committed."""

        def show(file: StagedFile) -> None:
            source, target = self._layout.staged_file(attempt, file.staged), self._layout.data_file(file.new.name)
            failpoints.hit("before-rename")
            naming.give_name(
                self._files,
                source,
                target,
                unique=bool(attempt.start),
                check_unnamed=lambda: self._check_unnamed(attempt, file),
            )
            failpoints.hit("after-rename")

        if places.is_on_store(self._layout.target):
            side_by_side(show, files)
        else:
            for file in files:
                show(file)

    def _check_unnamed(self, attempt: Attempt, file: StagedFile) -> None:
        """Never remove a file that a log entry names, whatever its name: readers may read any version."""
        names = self._live()
        for entry in read_log(self._files, self._layout.log):
            names |= entry.added | entry.removed
        if last_part(file.new.name) in names:
            self._check_not_in(attempt)
            raise DataLost(
                f"sink {self._name!r}: {self._layout.data_file(file.new.name)} should be the file that was staged for "
                f"epoch {attempt.epoch}, but the table's log has another file of that name: two journals have written "
                "for one stream, or the table was restored. Nothing was changed. Restore checkpoint and table together "
                "from one copy"
            )

    def _live(self) -> set[str]:
        """The names of the files that readers of the latest version see."""
        table, state = self.table()
        return {last_part(path) for path, _ in table.live()} if state is not None else set()

    def _check_lengths(self, attempt: Attempt, epoch: StagedEpoch) -> None:
        for file, found in self._lengths(epoch.files):
            if found == file.new.size:
                continue
            path = self._layout.data_file(file.new.name)
            self._check_not_in(attempt)
            was = "is neither there nor staged" if found is None else f"has {found}"
            raise DataLost(
                f"sink {self._name!r}: {path} should have {file.new.size} bytes and {was}: another program has changed "
                f"it. Epoch {attempt.epoch} is decided and cannot be committed without it; the table was not touched. "
                + PUT_BACK
            )

    def _check_not_in(self, attempt: Attempt) -> None:
        """CommitConflict if another process has just committed the epoch: then its missing files are not lost."""
        table, state = self.table()
        if state is not None and last_epoch(table, state, attempt.lineage) >= attempt.epoch:
            raise CommitConflict("another process has committed the epoch")

    def _commit_by_spark(self, attempt: Attempt, epoch: StagedEpoch, before: TableState) -> None:
        table = self.spark_writer(f"epoch {attempt.epoch} is decided, and the table has changed since it was staged")
        staged = [self._checked_path(attempt, file) for file in epoch.files]
        tag = note(attempt, epoch.offsets)
        failpoints.hit("before-log")
        try:
            table.apply_settings(epoch.settings)
            rows = table.rows(staged, epoch.schema)
            if epoch.mode == "upsert":
                table.merge(rows, epoch.keys, attempt.lineage, attempt.epoch, tag, deletes=epoch.deletes)
            else:
                mode = "overwrite" if epoch.mode == "complete" else "append"
                table.write(rows, mode, attempt.lineage, attempt.epoch, tag, add_columns=epoch.add_columns)
        except Exception as fault:
            if jvm.is_concurrent(fault):
                raise CommitConflict(str(fault).partition("\n")[0]) from fault
            if jvm.is_refusal(fault):
                raise Refused(
                    f"sink {self._name!r}: epoch {attempt.epoch} is decided, but Delta refuses its rows: "
                    f"{jvm.brief(fault)}. The table has changed since they were staged. They are still in "
                    f"{self._layout.attempt(attempt)}, and the table was not touched. Change the table back and start "
                    "the query again"
                ) from fault
            raise
        failpoints.hit("after-log")
        after = table.state()
        self._sync(range(before.version + 1, (after.version if after else before.version) + 1))

    def _checked_path(self, attempt: Attempt, file: StagedFile) -> str:
        staged = self._layout.staged_file(attempt, file.staged)
        if self._files.length(staged) == file.new.size:
            return spark_path(staged)
        self._check_not_in(attempt)
        raise DataLost(
            f"sink {self._name!r}: {staged} should have {file.new.size} bytes: another program has removed or changed "
            f"it. Epoch {attempt.epoch} is decided and cannot be committed without it; the table was not touched. "
            + PUT_BACK
        )

    def _sync(self, versions: range) -> None:
        """Sync the local log before the staged files are deleted: neither delta-rs nor Delta does."""
        if isinstance(self._files, LocalFiles):
            entries = (join(self._layout.log, f"{version:020d}.json") for version in versions)
            for path in (*filter(os.path.exists, entries), self._layout.log):
                self._files.sync(path)
