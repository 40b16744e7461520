"""The second phase: one log entry with the epoch's files and its transaction id.

The table's own transaction version says whether the epoch is in. As long as it is not, a try may be
repeated from any step: files that have moved are known by name and length, and of two log entries
with the same transaction id Delta lets one pass.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import StagedEpoch, StagedFile
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table import jvm
from epochal.sinks.delta.table.gate import TableState, closed
from epochal.sinks.delta.table.landed import landed, note
from epochal.sinks.delta.table.log import last_part
from epochal.sinks.delta.table.log import read as read_log
from epochal.sinks.delta.table.native import NativeTable, Outrun, Unreadable
from epochal.sinks.delta.table.schema import fit
from epochal.sinks.storage.hadoop import session_for
from epochal.sinks.storage.paths import spark_path
from epochal.txn import failpoints, landing
from epochal.txn.errors import DataLost, Refused
from epochal.txn.files import Files, LocalFiles, is_local, join
from epochal.txn.model import NO_EPOCH, Attempt, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

TRIES = 10
HISTORY = 500  # commits of a table that are looked through for this stream's latest epochs
RETENTION = "delta.setTransactionRetentionDuration"
Table = NativeTable | jvm.SparkTable


def last_epoch(table: Table, state: TableState, lineage: str) -> int:
    """The last epoch of a lineage in the table."""
    found = table.last(lineage)
    if found is None and RETENTION in state.properties:
        # Delta forgets transaction ids of this age; the history remembers longer.
        found = max((e.epoch for e in landed(table.commits()) if e.lineage == lineage), default=None)
    return NO_EPOCH if found is None else found


class Committer:
    """Commits staged epochs to one table."""

    def __init__(self, name: str, files: Files, layout: Layout) -> None:
        self._name, self._files, self._layout = name, files, layout
        self._native = NativeTable(layout.target)
        self._spark: jvm.SparkTable | None = None

    def table(self, session: SparkSession | None = None) -> tuple[Table, TableState | None]:
        """The table by the fastest way that can read it, and its state, if it exists."""
        if is_local(self._layout.target):
            try:
                return self._native, self._native.state()
            except Unreadable as fault:
                log.debug("delta-rs cannot read the table", extra={"sink": self._name, "error": str(fault)})
        table = self.spark(session)
        return table, table.state()

    def spark(self, session: SparkSession | None = None) -> jvm.SparkTable:
        """The table by Delta's own code."""
        running = session or session_for(self._layout.target)
        if running is None:
            raise Refused(
                f"sink {self._name!r}: {self._layout.target} needs Delta's own code, and so Spark. Start the query, or "
                "an epochal.session() before what you were doing"
            )
        if self._spark is None or not self._spark.runs_in(running):
            self._spark = jvm.SparkTable(running, spark_path(self._layout.target))
        return self._spark

    def commit(self, attempt: Attempt, epoch: StagedEpoch) -> Outcome:
        """Bring the epoch into the table, unless it is in."""
        for file in epoch.files:  # before the first step: a name that leads elsewhere must not be found halfway
            self._layout.staged_file(attempt, file.staged)
            self._layout.data_file(file.new.name)
        outrun = ""
        for _ in range(TRIES):
            table, state = self.table()
            if state is None:
                raise DataLost(
                    f"sink {self._name!r}: there is no Delta table in {self._layout.target} any more. Epoch "
                    f"{attempt.epoch} is decided; put the table back"
                )
            if last_epoch(table, state, attempt.lineage) >= attempt.epoch:
                self._check_same(attempt, epoch, table)
                self._put_back(attempt, epoch)
                return Outcome.ALREADY_COMMITTED
            self.check_predecessor(attempt, table, state)
            try:
                if epoch.native and isinstance(table, NativeTable) and self._is_open(state, epoch):
                    self._commit_native(attempt, epoch)
                else:
                    self._commit_by_spark(attempt, epoch, state)
            except Outrun as fault:
                outrun = str(fault)
                log.info("commit outrun", extra={"sink": self._name, "epoch": attempt.epoch, "by": outrun})
                continue
            return Outcome.COMMITTED
        raise OSError(f"{self._layout.target}: not committed in {TRIES} tries, the last time because: {outrun}")

    def check_predecessor(self, attempt: Attempt, table: Table, state: TableState | None) -> None:
        """An epoch goes only into a table that has the one before it."""
        last = NO_EPOCH if state is None else last_epoch(table, state, attempt.lineage)
        landing.check_predecessor(self._name, self._layout.target, attempt, lambda epoch: epoch <= last)

    def _check_same(self, attempt: Attempt, epoch: StagedEpoch, table: Table) -> None:
        """The epoch that is in must be this attempt: a copy of the journal may have written its own."""
        found = next(
            (e for e in landed(table.commits(HISTORY)) if (e.lineage, e.epoch) == (attempt.lineage, attempt.epoch)),
            None,
        )
        if found is None:
            return  # so long ago that the history does not tell
        shown = landing.Shown(found.generation, found.start, found.offsets)
        where = f"{self._layout.target} (version {found.version})"
        landing.check_same(self._name, where, attempt, epoch.offsets, shown)

    def _is_open(self, state: TableState, epoch: StagedEpoch) -> bool:
        """Whether the table is still one that delta-rs may commit these files to."""
        reason = closed(state, epoch.mode)
        if reason is None and fit(state.schema, epoch.schema, add_columns=False).faults:
            reason = "its columns have changed"
        if reason is None and any(set(f.new.partition) != set(state.partition_by) for f in epoch.files):
            reason = "its partitioning has changed"
        if reason is None and epoch.mode == "complete" and not self._native.can_replace():
            log.debug("delta-rs cannot remove files by these names", extra={"sink": self._name})
            return False
        if reason is not None:
            log.warning("the table has changed since staging", extra={"sink": self._name, "table": reason})
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
        """What the log names must be there before the staged files go.

        VACUUM removes what no log entry names, at once if it is told to retain nothing. It may have found our files
        between the look at them and the log entry; nobody else has looked since, and a try that died may not have.
        """
        gone = [file for file in epoch.files if self._files.length(self._layout.data_file(file.new.name)) is None]
        if not gone or not epoch.native:
            return
        live = self._live()
        for file in gone:
            if last_part(file.new.name) not in live:
                continue  # deleted by a later commit, or rewritten; or the rows are in files of Delta's own
            self._show(attempt, file)
            path = self._layout.data_file(file.new.name)
            if self._files.length(path) is None:
                raise DataLost(
                    f"sink {self._name!r}: {path} is gone, and the table's log names it; so is what was staged for "
                    f"epoch {attempt.epoch}. Another program has removed both: put the file back from a copy, or take "
                    "it out of the log (FSCK, or RESTORE to an earlier version)"
                )
            log.warning("data file put back, another program had removed it", extra={"sink": self._name, "file": path})
        self._files.sync(self._layout.target)

    def _show(self, attempt: Attempt, file: StagedFile) -> None:
        """Give a staged file its name in the table's folder. It keeps the staged one too until the epoch is in.

        So whatever VACUUM takes of what no log entry names yet can be put back.
        """
        source, target = self._layout.staged_file(attempt, file.staged), self._layout.data_file(file.new.name)
        failpoints.hit("before-rename")
        try:
            os.utime(source)  # VACUUM goes by age, and an epoch may have waited for long
            if os.path.exists(target) and not os.path.samefile(source, target):
                self._check_unnamed(attempt, file)
                os.unlink(target)  # of a start whose journal is gone
            os.link(source, target)
        except (FileNotFoundError, FileExistsError):
            pass  # another try is at it, or the epoch is in: the lengths will tell
        failpoints.hit("after-rename")

    def _check_unnamed(self, attempt: Attempt, file: StagedFile) -> None:
        """Nothing that a log entry names is ours to remove, whatever it is called: it may be read at any version."""
        names = self._live()
        for entry in read_log(self._files, self._layout.log):
            names |= entry.added | entry.removed
        if last_part(file.new.name) in names:
            raise DataLost(
                f"sink {self._name!r}: {self._layout.data_file(file.new.name)} should be what was staged for epoch "
                f"{attempt.epoch}, but another file of that name is in the table's log: two journals have written to "
                "one lineage, or the table was restored. Nothing was changed"
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
                f"it. Epoch {attempt.epoch} is decided and cannot be committed without it; the table was not touched"
            )

    def _check_not_in(self, attempt: Attempt) -> None:
        """Files of an epoch that another process has just committed are no loss."""
        table, state = self.table()
        if state is not None and last_epoch(table, state, attempt.lineage) >= attempt.epoch:
            raise Outrun("another process has committed the epoch")

    def _commit_by_spark(self, attempt: Attempt, epoch: StagedEpoch, before: TableState) -> None:
        table = self.spark()
        staged = [self._find(attempt, file) for file in epoch.files]
        tag = note(attempt, epoch.offsets)
        failpoints.hit("before-log")
        try:
            table.understand(epoch.settings)
            rows = table.rows(staged, epoch.schema)
            if epoch.mode == "upsert":
                table.merge(rows, epoch.keys, attempt.lineage, attempt.epoch, tag, deletes=epoch.deletes)
            else:
                mode = "overwrite" if epoch.mode == "complete" else "append"
                table.write(rows, mode, attempt.lineage, attempt.epoch, tag, add_columns=epoch.add_columns)
        except Exception as fault:
            if jvm.is_concurrent(fault):
                raise Outrun(str(fault).partition("\n")[0]) from fault
            if jvm.is_refusal(fault):
                raise Refused(
                    f"sink {self._name!r}: epoch {attempt.epoch} is decided, but Delta refuses its rows: "
                    f"{jvm.brief(fault)}. The table has changed since they were staged. They are kept in "
                    f"{self._layout.attempt(attempt)}, and the table was not touched. Change the table back and start "
                    "the query again"
                ) from fault
            raise
        failpoints.hit("after-log")
        after = table.state()
        self._sync(range(before.version + 1, (after.version if after else before.version) + 1))

    def _find(self, attempt: Attempt, file: StagedFile) -> str:
        staged = self._layout.staged_file(attempt, file.staged)
        if self._files.length(staged) == file.new.size:
            return spark_path(staged)
        self._check_not_in(attempt)
        raise DataLost(
            f"sink {self._name!r}: {staged} should have {file.new.size} bytes: another program has removed or changed "
            f"it. Epoch {attempt.epoch} is decided and cannot be committed without it; the table was not touched"
        )

    def _sync(self, versions: range) -> None:
        """Before the staged files go: neither delta-rs nor Delta brings a local log to stable storage."""
        if isinstance(self._files, LocalFiles):
            entries = (join(self._layout.log, f"{version:020d}.json") for version in versions)
            for path in (*filter(os.path.exists, entries), self._layout.log):
                self._files.sync(path)
