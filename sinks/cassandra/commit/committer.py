"""The second phase: the staged rows are written to the table, then the ledger records the epoch as committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from epochal.sinks.cassandra.cluster.connection import connect
from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.commit import job as jobs
from epochal.sinks.cassandra.commit.statements import adding, write_plan
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.layout import STREAMS, home_of
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.ledger_state import StreamState, maker_of
from epochal.sinks.cassandra.table import identity, read
from epochal.sinks.spark.staged_files import read_by_spark
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import running_session, session_for
from epochal.sinks.storage.paths import spark_path
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import PUT_BACK, BadRows, DataLost, FencedOut, Refused
from epochal.txn.files import Files, below, is_local, join
from epochal.txn.model import NO_EPOCH, Attempt, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Commits staged epochs to one table."""

    name: str
    endpoint: Endpoint
    keyspace: str
    table: str
    in_flight: int
    batch_rows: int
    ledger: Ledger
    files: Files
    staging: str

    def commit(self, attempt: Attempt, epoch: StagedEpoch) -> Outcome:
        """Write an epoch and record it, unless the ledger has it."""
        if epoch.table != f"{self.keyspace}.{self.table}":
            raise Refused(
                f"sink {self.name!r}: a decided epoch was staged for {epoch.table}, this sink writes to "
                f"{self.keyspace}.{self.table}. Run `epochal recover CHECKPOINT` before the table is changed"
            )
        state = self.ledger.read()
        own = state.streams.get(attempt.lineage)
        self._check_predecessor(attempt, own)
        if own is None:
            self.ledger.enrol(attempt.lineage, adds=epoch.mode == "accumulate")
        outcome = Outcome.ALREADY_COMMITTED
        if own is not None and own.epoch >= attempt.epoch:
            self._check_same(attempt, epoch, own)
        else:
            if (successor := state.adopted_by(attempt.lineage)) is not None:
                raise FencedOut(
                    f"sink {self.name!r}: epoch {attempt.epoch}: another stream, {successor}, has taken this "
                    "one's place; nothing of the epoch was written"
                )
            if self._write(attempt, epoch):
                outcome = Outcome.COMMITTED
        failpoints.hit("before-cleanup")
        self.ledger.forget_parts(attempt.lineage, attempt.epoch)
        self.files.delete(home_of(self.staging, attempt))
        failpoints.hit("after-cleanup")
        return outcome

    def _check_predecessor(self, attempt: Attempt, own: StreamState | None) -> None:
        """An epoch is committed only to a table whose ledger has the one before it."""
        last = NO_EPOCH if own is None else own.epoch
        where = f"{self.keyspace}.{self.table} (by its ledger, {self.keyspace}.{STREAMS})"
        commit_checks.check_predecessor(self.name, where, attempt, lambda epoch: epoch <= last)

    def _check_same(self, attempt: Attempt, epoch: StagedEpoch, own: StreamState) -> None:
        """The committed epoch must be this attempt: a copy of the journal may have written its own."""
        where = f"{self.keyspace}.{self.table}"
        commit_checks.check_same_attempt(self.name, where, attempt, epoch.offsets, own.shown(attempt.epoch))

    def _write(self, attempt: Attempt, epoch: StagedEpoch) -> bool:
        """Write every row and record the epoch; False if another process has recorded it first."""
        unwritten = self._unwritten(attempt, epoch)
        if unwritten is None:
            return False
        if unwritten:
            self._check_table(attempt, epoch)
            failpoints.hit("before-rows")
            self._run(attempt, epoch, unwritten)
            failpoints.hit("after-rows")
        failpoints.hit("before-ledger")
        first = self.ledger.finish(attempt.lineage, attempt.epoch, epoch.stamp, epoch.offsets, maker_of(attempt))
        failpoints.hit("after-ledger")
        return first

    def _check_table(self, attempt: Attempt, epoch: StagedEpoch) -> None:
        """Rows were encoded for the types of the table's columns. A table that was dropped and created may differ."""
        connection = connect(self.endpoint)
        if epoch.identity in ("", identity(connection, self.keyspace, self.table)):
            return
        table = read(connection, self.keyspace, self.table)
        columns = {name: str(kind) for name, kind in table.columns.items()}
        changed = [
            f"{name} was {kind} and is {columns.get(name, 'missing')}"
            for name, kind in epoch.types.items()
            if columns.get(name) != kind
        ]
        if table.key != epoch.key:
            changed.append(f"the primary key was ({', '.join(epoch.key)}) and is ({', '.join(table.key)})")
        if changed:
            raise Refused(
                f"sink {self.name!r}: {epoch.table} was created again since epoch {attempt.epoch} was staged, and "
                f"{'; '.join(changed)}. Nothing of the epoch was written. Create the table as it was and start the "
                "query again, or run `epochal recover CHECKPOINT`"
            )

    def _unwritten(self, attempt: Attempt, epoch: StagedEpoch) -> dict[str, str] | None:
        """The staged files that are not written yet, by name; None if another process has committed the epoch."""
        done = self.ledger.parts(attempt.lineage, attempt.epoch)
        folder = join(home_of(self.staging, attempt), "data")
        unwritten = {}
        paths = {name: below(folder, name) for name, _, _ in epoch.files}
        for name, size, _ in epoch.files:
            if f"{attempt.generation}/{name}" in done:
                continue
            path = paths[name]
            if self.files.length(path) != size:
                own = self.ledger.read().streams.get(attempt.lineage)
                if own is not None and own.epoch >= attempt.epoch:
                    return None
                raise DataLost(
                    f"sink {self.name!r}: {path} should have {size} bytes: another program has removed or changed "
                    f"it. Epoch {attempt.epoch} is decided and cannot be written without it. {PUT_BACK}"
                )
            unwritten[name] = spark_path(path)
        return unwritten

    def check_totals(self, attempt: Attempt, epoch: StagedEpoch) -> None:
        """While an epoch is staged, refuse totals that would fill more than half of a column's range. Adds nothing."""
        folder = join(home_of(self.staging, attempt), "data")
        half = replace(epoch, limits={name: bits - 1 for name, bits in epoch.limits.items()})
        try:
            self._run(attempt, half, {name: spark_path(join(folder, name)) for name, _, _ in epoch.files}, dry=True)
        except Refused as fault:
            raise BadRows(f"sink {self.name!r}: {fault}. Nothing of the epoch was written") from None

    def _run(self, attempt: Attempt, epoch: StagedEpoch, files: Mapping[str, str], *, dry: bool = False) -> None:
        additions = None
        if epoch.mode == "accumulate":
            chain = self.ledger.read().chain(attempt.lineage)
            additions = replace(adding(self.keyspace, self.table, epoch, chain, attempt), dry=dry)
        job = jobs.Job(
            endpoint=self.endpoint.with_secrets(),
            keyspace=self.keyspace,
            table=self.table,
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            plan=write_plan(self.keyspace, self.table, epoch, self.in_flight, self.batch_rows),
            adding=additions,
            rows={name: rows for name, _, rows in epoch.files},
        )
        spark = running_session() if is_local(self.staging) else session_for(self.staging)
        # On Spark Connect from this process: the password stays here, and the end of the session does not matter.
        if spark is not None and not is_connect(spark) and spark.sparkContext._jsc is not None:
            self._run_in_spark(spark, job, files)
        else:
            jobs.run_here(job, {name: path.removeprefix("file:") for name, path in files.items()})

    def _run_in_spark(self, spark: SparkSession, job: jobs.Job, files: Mapping[str, str]) -> None:
        paths = [path.removeprefix("file:") for path in files.values()]
        with read_by_spark(self.files, paths, f"sink {self.name!r}: "):
            jobs.run_in_spark(spark, job, files)
