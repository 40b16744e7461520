"""The second phase: what is staged goes into the table, and then the ledger says that the epoch is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epochal.sinks.cassandra import job as jobs
from epochal.sinks.cassandra.connection import Endpoint
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.statements import adding, plan
from epochal.sinks.enrolment import safe_name
from epochal.sinks.hadoop import running_session, session_for
from epochal.txn import failpoints
from epochal.txn.errors import DataLost, FencedOut, Refused
from epochal.txn.files import Files, is_local, join
from epochal.txn.model import Attempt, Outcome


def home_of(staging: str, attempt: Attempt) -> str:
    """Where an attempt is staged."""
    return join(staging, safe_name(attempt.lineage), attempt.key)


def uri(path: str) -> str:
    """A path as Spark takes it for what it is."""
    return f"file:{path}" if path.startswith("/") else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Brings staged epochs into one table."""

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
        """Bring an epoch in, unless it is."""
        if epoch.table != f"{self.keyspace}.{self.table}":
            raise Refused(
                f"sink {self.name!r}: a decided epoch was staged for {epoch.table}, this sink writes to "
                f"{self.keyspace}.{self.table}. Run `epochal recover CHECKPOINT` before the table is changed"
            )
        memory = self.ledger.memory(attempt.lineage)
        if not memory.enrolled:
            self.ledger.enrol(attempt.lineage, None)
        outcome = Outcome.ALREADY_COMMITTED
        if memory.last < attempt.epoch:
            if memory.adopted_by is not None:
                raise FencedOut(
                    f"sink {self.name!r}: epoch {attempt.epoch}: another stream, {memory.adopted_by}, has taken this "
                    "one's place; nothing of the epoch was written"
                )
            if self._write(attempt, epoch):
                outcome = Outcome.COMMITTED
        failpoints.hit("before-cleanup")
        self.ledger.forget_parts(attempt.lineage, attempt.epoch)
        self.files.delete(home_of(self.staging, attempt))
        failpoints.hit("after-cleanup")
        return outcome

    def _write(self, attempt: Attempt, epoch: StagedEpoch) -> bool:
        """Bring every row in and note the epoch; False if another process has noted it first."""
        todo = self._todo(attempt, epoch)
        if todo is None:
            return False
        if todo:
            failpoints.hit("before-rows")
            self._run(attempt, epoch, todo)
            failpoints.hit("after-rows")
        failpoints.hit("before-ledger")
        first = self.ledger.finish(attempt.lineage, attempt.epoch, epoch.stamp, epoch.offsets)
        failpoints.hit("after-ledger")
        return first

    def _todo(self, attempt: Attempt, epoch: StagedEpoch) -> dict[str, str] | None:
        """The staged files that are not written yet, by name; None if the epoch is in meanwhile."""
        done = self.ledger.parts(attempt.lineage, attempt.epoch)
        folder = join(home_of(self.staging, attempt), "data")
        todo = {}
        for name, size, _ in epoch.files:
            if f"{attempt.generation}/{name}" in done:
                continue
            path = join(folder, name)
            if self.files.length(path) != size:
                standing = self.ledger.standing(attempt.lineage)
                if standing is not None and standing.epoch >= attempt.epoch:
                    return None
                raise DataLost(
                    f"sink {self.name!r}: {path} should have {size} bytes: another program has removed or changed "
                    f"it. Epoch {attempt.epoch} is decided and cannot be written without it"
                )
            todo[name] = uri(path)
        return todo

    def _run(self, attempt: Attempt, epoch: StagedEpoch, todo: Mapping[str, str]) -> None:
        more = None
        if epoch.mode == "accumulate":
            more = adding(self.keyspace, self.table, epoch, self.ledger.chain(attempt.lineage), attempt)
        work = jobs.Job(
            endpoint=self.endpoint.with_secrets(),
            keyspace=self.keyspace,
            table=self.table,
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            plan=plan(self.keyspace, self.table, epoch, self.in_flight, self.batch_rows),
            adding=more,
            rows={name: rows for name, _, rows in epoch.files},
        )
        spark = running_session() if is_local(self.staging) else session_for(self.staging)
        if spark is not None and spark.sparkContext._jsc is not None:
            jobs.by_spark(spark, work, todo)
        else:
            jobs.here(work, {name: path.removeprefix("file:") for name, path in todo.items()})
