"""The second phase: one log entry with the epoch's files and its transaction id.

The table's own transaction version says whether the epoch is committed. Until it is, a commit may be
repeated from any step: files that were renamed are recognised by name and length, and Delta accepts only one
of two log entries with the same transaction id.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import StagedEpoch, StagedFile
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table import jvm
from epochal.sinks.delta.table.commit_notes import committed_epochs, note
from epochal.sinks.delta.table.gate import TableState, why_not_native
from epochal.sinks.delta.table.log import last_part
from epochal.sinks.delta.table.log import read as read_log
from epochal.sinks.delta.table.native import CommitConflict, NativeTable, Unreadable
from epochal.sinks.delta.table.schema import fit
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import session_for
from epochal.sinks.storage.paths import spark_path
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import PUT_BACK, DataLost, Refused
from epochal.txn.files import Files, LocalFiles, is_local, join
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

    def __init__(self, name: str, files: Files, layout: Layout) -> None:
        self._name, self._files, self._layout = name, files, layout
        self._native = NativeTable(layout.target)
        self._spark: jvm.SparkTable | None = None

    def table(self, session: SparkSession | None = None) -> tuple[Table, TableState | None]:
        """The table through delta-rs if that can read it, else through Delta's code; and its state, if it exists."""
        if is_local(self._layout.target):
            try:
                return self._native, self._native.state()
            except Unreadable as fault:
                log.debug("delta-rs could not read the table", extra={"sink": self._name, "error": str(fault)})
        table = self.spark(session)
        return table, table.state()

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
        if not is_local(self._layout.target):
            return " (it is not on a local disk)"
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
        for file in epoch.files:
            self._show(attempt, file)
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
        missing = [file for file in epoch.files if self._files.length(self._layout.data_file(file.new.name)) is None]
        if not missing or not epoch.native:
            return
        live = self._live()
        for file in missing:
            if last_part(file.new.name) not in live:
                continue  # deleted or rewritten by a later commit; or Delta's own code wrote the rows to other files
            self._show(attempt, file)
            path = self._layout.data_file(file.new.name)
            if self._files.length(path) is None:
                raise DataLost(
                    f"sink {self._name!r}: {path} is missing, though the table's log names it, and so is the file that "
                    f"was staged for epoch {attempt.epoch}. Another program has removed both: put the file back from a "
                    "copy, or take it out of the log (FSCK, or RESTORE to an earlier version)"
                )
            log.warning("data file restored, another program had removed it", extra={"sink": self._name, "file": path})
        self._files.sync(self._layout.target)

    def _show(self, attempt: Attempt, file: StagedFile) -> None:
        """Link a staged file into the table's folder. The staged name stays until the epoch is committed.

        So a file that VACUUM removes before a log entry names it can be restored.
        """
        source, target = self._layout.staged_file(attempt, file.staged), self._layout.data_file(file.new.name)
        failpoints.hit("before-rename")
        try:
            os.utime(source)  # VACUUM removes old files, and an epoch may have waited for long
            if os.path.exists(target) and not os.path.samefile(source, target):
                self._check_unnamed(attempt, file)
                os.unlink(target)  # left by a start whose journal was lost
            os.link(source, target)
        except (FileNotFoundError, FileExistsError):
            pass  # another process does the same, or has committed the epoch: `_check_lengths` finds out
        failpoints.hit("after-rename")

    def _check_unnamed(self, attempt: Attempt, file: StagedFile) -> None:
        """Never remove a file that a log entry names, whatever its name: readers may read any version."""
        names = self._live()
        for entry in read_log(self._files, self._layout.log):
            names |= entry.added | entry.removed
        if last_part(file.new.name) in names:
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
        for file in epoch.files:
            path = self._layout.data_file(file.new.name)
            found = self._files.length(path)
            if found == file.new.size:
                continue
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
        table = self.spark()
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
