"""Cassandra: rows are staged as files of encoded bytes, and written when the epoch is decided.

Cassandra cannot hide rows, so nothing of an epoch reaches it before the decision. Every write carries
the timestamp that was fixed when the epoch was staged: a repeat, by any process at any time, changes
nothing. An epoch is committed when the ledger records it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from epochal.sinks.cassandra import audit
from epochal.sinks.cassandra.cluster.connection import ClusterSession, connect
from epochal.sinks.cassandra.cluster.endpoint import PASSWORD, USER, Endpoint
from epochal.sinks.cassandra.cluster.faults import naming
from epochal.sinks.cassandra.commit.committer import Committer
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.layout import home_of
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.cassandra.stage import frames
from epochal.sinks.cassandra.stage.row_format import faults_of, row_format_for
from epochal.sinks.cassandra.stage.writing import Stager
from epochal.sinks.cassandra.table import Table, read
from epochal.sinks.config.declaring import described, secrets_in
from epochal.sinks.config.options import nearest
from epochal.sinks.spark.staged_files import StagedFiles
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.errors import Refused
from epochal.txn.files import join
from epochal.txn.model import Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.state.typed import Edit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


log = logging.getLogger("epochal")

STAMP = "_stamp"  # bookkeeping in the journal


class CassandraSink(CassandraOptions):
    """A Cassandra table that gets each epoch once, however often it is sent.

    >>> CassandraSink("shop.orders", contact_points=["127.0.0.1"], order_by=["updated_at"])
    CassandraSink('shop.orders', mode='upsert', name='cassandra')

    ``"upsert"`` writes rows by primary key; of several rows of a key in one epoch the last by `order_by` wins, and
    those for which `delete_when` holds delete their row. ``"accumulate"`` adds each epoch to `totals`, such as
    ``{"amount": "sum", "orders": "count"}``, exactly once. `dead_letters` is a sink that gets the rows which the table
    cannot hold, in the same epoch. Hosts and secrets are in `connection`, limits in `tuning`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keyspace, self._table = self.names
        self._endpoint = Endpoint.of(self.cluster)
        self._staged = StagedFiles(self.name, self.staging)
        self._stamp = 0  # the latest timestamp that this process has seen

    @property
    def target(self) -> str:
        """The table as guard, status and logs name it."""
        return f"cassandra:{','.join(self._endpoint.contact_points)}/{self._keyspace}.{self._table}"

    @property
    def _adds(self) -> bool:
        return self.mode == "accumulate"

    @property
    def audits(self) -> CassandraSink:
        return self

    @property
    def connect(self) -> CassandraSink:
        return self

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        return self._staged.described(
            {
                **super().describe(rows),
                **described(self.cluster),
                "target": self.target,
                "totals": {**self.total_columns},
            }
        )

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """The sink that a journal describes. Secrets come from the environment, if it may have them."""
        sink = super().from_description(description)
        sink._endpoint = Endpoint.of(sink.cluster, from_journal=True)
        return sink

    def open(self, lineage: str) -> Memory:
        with naming(self.name):
            table = self._live_table()
            return self._ledger().read().memory(lineage, self.target, adds=self._adds, identity=table.identity)

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:  # noqa: ARG002  # the table has its columns
        with naming(self.name):
            return self._ledger().claim(claim, version=version, adds=self._adds)

    def withdraw(self, claim: Claim) -> None:
        with naming(self.name):
            self._ledger().withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        with naming(self.name):
            return self._ledger().claims().holder(lineage)

    def connect_faults(self) -> list[str]:
        faults = []
        if secrets := secrets_in(self.cluster):
            faults.append(
                f"{' and '.join(secrets)}: would be sent to the Spark Connect server with the query. Set {USER} and "
                f"{PASSWORD} in the environment of the server instead"
            )
        return faults + self._staged.connect_faults()

    def check_output_mode(self, mode: str) -> None:
        adds = [name for name, how in self.total_columns.items() if how in ("sum", "count")]
        if mode == "complete" and adds:
            raise Refused(
                f"sink {self.name!r} adds each epoch's rows to {', '.join(adds)}, and the output mode complete gives "
                "all rows again in each epoch. Nothing was written. Give it the single rows, with "
                "outputMode('append'); or use mode='upsert', which replaces totals"
            )
        if mode == "update" and adds:
            log.warning(
                "sink %r adds up %s: an aggregation whose output mode is update gives totals again, which would be "
                "added several times",
                self.name,
                ", ".join(adds),
            )

    def check_frame(self, rows: DataFrame) -> list[str]:
        from pyspark.errors import AnalysisException

        self._staged.check_writable(rows)
        with naming(self.name):
            table = self._live_table()
        faults = faults_of(table, json.loads(rows.schema.json()), self)
        named = [name for name in (*self.drop, self.expires_at) if name is not None]
        faults += [
            f"{name}: an option names it, and it is not in the frame{nearest(name, rows.columns)}"
            for name in named
            if name not in rows.columns
        ]
        if not faults:
            try:
                frames.with_helper_columns(rows, self)
            except AnalysisException as fault:
                faults.append(f"delete_when or expires_at: {fault.getMessage()}".partition("\n")[0])
        return faults

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        attempt = batch.attempt
        with naming(self.name):
            files, home = self._staged.place_for(batch.rows, batch.scratch)
            folder = join(home_of(home, attempt), "data")
            stager = self._stager(batch.rows)
            staged = stager.write(batch.rows, files, folder)
            noted = batch.edit()
            self._stamp = stamp = self._ledger().take_stamp(attempt.lineage, max(self._stamp, _noted_stamp(noted)))
            noted.value(STAMP).set(stamp)
            epoch = replace(stager.epoch(staged, stamp, batch.offsets), home=home)
            if staged.has_large_sums:
                self._committer(attempt, epoch).check_totals(attempt, epoch)
            files.sync_all([join(folder, name) for name, _, _ in staged.files], within=self._staged.within(home))
        written = sum(size for _, size, _ in staged.files)
        return Staged(epoch.handle(), staged.received, changes=noted.changes, bytes=written)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        epoch = StagedEpoch.read(handle)
        self._stamp = max(self._stamp, epoch.stamp)  # also if this fails: the next epoch must be later
        with naming(self.name, waits=False):
            return self._committer(attempt, epoch).commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        files, home = self._staged.place_of(attempt, "" if handle is None else str(handle.body.get("home", "")))
        files.delete(home_of(home, attempt))

    def audit(self, scope: Scope) -> StoreReport:
        """Compare the ledger with the journal. Rows are not read: they may be overwritten, deleted or expired."""
        with naming(self.name):
            own = self._ledger().read().streams.get(scope.lineage)
        return audit.audited(scope, own, keyspace=self._keyspace, mode=self.mode)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return self._staged.leftovers(lineage, scratch)

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, with the reason for each."""
        with naming(self.name):
            return self._stager(rows).rejected(rows)

    def _committer(self, attempt: Attempt, epoch: StagedEpoch) -> Committer:
        files, home = self._staged.place_of(attempt, epoch.home)
        return Committer(
            name=self.name,
            endpoint=self._endpoint,
            keyspace=self._keyspace,
            table=self._table,
            in_flight=self.tuning.in_flight,
            batch_rows=self.tuning.batch_rows,
            ledger=self._ledger(),
            files=files,
            staging=home,
        )

    def _connection(self) -> ClusterSession:
        return connect(self._endpoint)

    def _ledger(self) -> Ledger:
        return Ledger(self._connection, self._keyspace, self._table)

    def _live_table(self) -> Table:
        return read(self._connection(), self._keyspace, self._table)

    def _stager(self, rows: DataFrame) -> Stager:
        """Stages frames like this one in the table as it is now. BadRows if the frame does not fit."""
        table = self._live_table()
        row_format, expiry = row_format_for(self._connection(), table, json.loads(rows.schema.json()), self)
        return Stager(self, table, row_format, expiry)


def _noted_stamp(noted: Edit) -> int:
    """The timestamp of the last epoch that was decided, as the journal has it: the table's ledger may be older."""
    stamp = noted.value(STAMP).get()
    return stamp if isinstance(stamp, int) else 0
