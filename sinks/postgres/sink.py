"""PostgreSQL: rows are staged in tables that no reader of the target looks at, and shown by one transaction.

That transaction also enters the epoch into the ledger, under the lock that claims take too. So a reader sees all rows
of an epoch or none, a repeated commit finds its epoch there, and a driver that has lost the table shows nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import psycopg

from epochal.participant import (
    Attempt,
    Batch,
    Claim,
    Handle,
    Json,
    Memory,
    Outcome,
    Refused,
    Scope,
    Staged,
    StoreReport,
)
from epochal.sinks.postgres import audit
from epochal.sinks.postgres import table as tables
from epochal.sinks.postgres.commit import Committer
from epochal.sinks.postgres.connection import Endpoint, transaction, translating
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import quoted
from epochal.sinks.postgres.ledger import Ledger
from epochal.sinks.postgres.options import PostgresOptions, names_of
from epochal.sinks.postgres.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from epochal.sinks.postgres.stage.staging import Stager

log = logging.getLogger("epochal")

# What a mode does to the table.
PRIVILEGES = {
    "append": ("INSERT",),
    "upsert": ("SELECT", "INSERT", "UPDATE"),
    "accumulate": ("SELECT", "INSERT", "UPDATE"),
}


class PostgresSink(PostgresOptions):
    """A PostgreSQL table that gets each epoch once, in one transaction.

    >>> PostgresSink("shop.orders", hosts=["db1"], database="shop", mode="upsert", keys=["id"], order_by=["changed_at"])
    PostgresSink('shop.orders', mode='upsert', name='postgres')

    ``"append"`` inserts rows. ``"upsert"`` replaces them by `keys`; of several rows of a key in one epoch the last by
    `order_by` wins, and those for which `delete_when` holds delete their row. ``"accumulate"`` adds each epoch to
    `totals`, such as ``{"amount": "sum", "orders": "count"}``, exactly once.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        names = names_of(self.table)
        assert names is not None
        self._names = names
        self._from_journal = False

    @property
    def target(self) -> str:
        """The table as guard, status and logs name it."""
        return f"postgres:{','.join(self.hosts)}:{self.port}/{self.database}/{'.'.join(map(quoted, self._names))}"

    @property
    def audits(self) -> PostgresSink:
        return self

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "target": self.target}

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """The sink that a journal describes. The password comes from the environment, if it may have it."""
        sink = super().from_description(description)
        object.__setattr__(sink, "_from_journal", True)
        return sink

    # Before the first epoch.

    def check_frame(self, rows: DataFrame) -> list[str]:
        from pyspark.errors import AnalysisException

        from epochal.sinks.postgres.stage.plan import faults_of, plan

        with self._transaction("checks") as db:
            table = self._live_table(db)
        faults = faults_of(rows, table, self)
        if not faults:
            try:
                # Nothing is computed: Spark analyses the expressions.
                assert plan(rows, table, self, 0).lines(rows).schema
            except AnalysisException as fault:
                faults.append(f"delete_when: {fault.getMessage()}".partition("\n")[0])
        return faults

    def check_output_mode(self, mode: str) -> None:
        again = self.mode == "append" or any(how in ("sum", "count") for how in self.total_columns.values())
        if mode == "complete" and again:
            raise Refused(
                f"sink {self.name!r}: the output mode complete gives all rows again in each epoch, and "
                f"mode={self.mode!r} would write them again. Nothing was written. Use mode='upsert', or "
                "outputMode('append')"
            )
        if mode == "update" and again:
            log.warning(
                "sink %r has mode=%r: an aggregation whose output mode is update gives rows again, which would be "
                "written or added several times",
                self.name,
                self.mode,
            )

    def open(self, lineage: str) -> Memory:
        with self._transaction("opens") as db:
            table = self._live_table(db)
            memory = self._ledger.memory(db, lineage, table, self.target, adds=self.mode == "accumulate")
        if not table.fsync:
            log.warning("sink %r: the server has fsync=off: after a power cut epochs may be missing", self.name)
        return memory

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:  # noqa: ARG002  # the table has its columns
        with self._naming(), self._transaction("claims") as db:
            self._ledger.make(db)
            self._ledger.enter(db)
            lineages = self._ledger.lineages(db, lock=True)
            if lineages.version != version:
                return False
            self._ledger.write(db, lineages.with_claim(claim), adds=self.mode == "accumulate")
            return True

    def withdraw(self, claim: Claim) -> None:
        with self._transaction("claims") as db:
            before = self._ledger.lineages(db, lock=True)
            if (after := before.without(claim)) is not before:
                self._ledger.write(db, after, adds=False)

    def holder(self, lineage: str) -> Claim | None:
        with self._transaction("looks") as db:
            return self._ledger.lineages(db).holder(lineage) if self._ledger.exists(db) else None

    # Each epoch.

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        epoch, size, received = self._stager().stage(batch)
        seen = received if received != epoch.rows else None
        return Staged(epoch.handle(), epoch.rows, seen=seen, digest=epoch.digest, bytes=size or None)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        epoch = StagedEpoch.read(handle)
        committer = Committer(self.name, self.target, self._endpoint, self._ledger, self._names)
        return committer.commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the attempt names the rows
        with self._transaction("aborts") as db:
            if self._ledger.exists(db):
                self._ledger.discard(db, attempt)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        with self._transaction("looks") as db:
            keys = self._ledger.attempts(db, lineage)
        found = (Attempt.from_key(lineage, key, scratch=scratch) for key in keys)
        return [attempt for attempt in found if attempt is not None]

    def audit(self, scope: Scope) -> StoreReport:
        """Compare ledger and table with the journal."""
        with self._transaction("audits") as db:
            db.execute("SET TRANSACTION READ ONLY")
            return audit.audited(
                db, scope, self._ledger, self._live_table(db), mode=self.mode, column=self.epoch_column
            )

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, as far as Spark can tell, with the reason for each."""
        return self._stager().rejected(rows)

    # The server.

    def _stager(self) -> Stager:
        from epochal.sinks.postgres.stage.staging import Stager

        with self._transaction("stages") as db:
            table = self._live_table(db)
        return Stager(self, self._endpoint, self._ledger, table)

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.ledger_schema, ".".join(map(quoted, self._names)))

    @property
    def _endpoint(self) -> Endpoint:
        return Endpoint(
            hosts=tuple(self.hosts),
            port=self.port,
            database=self.database,
            user=self.user,
            password=self.password,
            sslmode=self.sslmode,
            ca_file=self.ca_file,
            from_journal=self._from_journal,
        ).with_secrets()

    def _live_table(self, db: psycopg.Connection[Any]) -> Table:
        with self._naming():
            table = tables.read(db, *self._names)
            needed = (*PRIVILEGES[self.mode], *(["DELETE"] if self.delete_when is not None else []))
            if lacking := [privilege for privilege in needed if privilege in table.lacking]:
                raise Refused(f"the user lacks {' and '.join(lacking)} on {table.sql}. Nothing was written. GRANT them")
        return table

    @contextmanager
    def _transaction(self, program: str) -> Iterator[psycopg.Connection[Any]]:
        endpoint = self._endpoint
        with translating(self.name, endpoint), transaction(endpoint, program) as db:
            yield db

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Put the sink's name before a refusal."""
        try:
            yield
        except Refused as fault:
            raise type(fault)(f"sink {self.name!r}: {fault}") from None
