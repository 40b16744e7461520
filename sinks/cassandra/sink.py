"""Cassandra: rows are staged as files of ready-made bytes, and written when the epoch is decided.

Cassandra cannot hide rows, so nothing of an epoch reaches it before the decision. Every write carries
the timestamp that was fixed when the epoch was staged: a repeat, by whomever and however late, changes
nothing. The epoch is in when the ledger says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from epochal.sinks.cassandra import audit
from epochal.sinks.cassandra.cluster.connection import ClusterSession, connect
from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.cluster.faults import naming
from epochal.sinks.cassandra.commit import job as jobs
from epochal.sinks.cassandra.commit.committer import Committer
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.layout import home_of
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.cassandra.stage import frames
from epochal.sinks.cassandra.stage.rows import ERROR, Shape
from epochal.sinks.cassandra.stage.shaping import faults_of, shape_of
from epochal.sinks.cassandra.table import Table, read
from epochal.sinks.config.declaring import described
from epochal.sinks.config.options import nearest
from epochal.sinks.spark import write_counts
from epochal.sinks.spark.reasons import reason_of
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.register import safe_name
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.errors import BadRows, Refused
from epochal.txn.files import join
from epochal.txn.model import Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger("epochal")

# What an epoch adds to a total. If it is no more than this, totals are not read while it is staged: those of larger
# epochs were, and half of a column's range was left for some 2^30 small ones.
SMALL = 1 << 32


class CassandraSink(CassandraOptions):
    """A Cassandra table that gets each epoch once, however often it is sent.

    >>> CassandraSink("shop.orders", contact_points=["127.0.0.1"], order_by=["updated_at"])
    CassandraSink('shop.orders', mode='upsert', name='cassandra')

    ``"upsert"`` writes rows by primary key; of several rows of a key in one epoch the last by `order_by` wins, and
    those for which `delete_when` holds delete their row. ``"accumulate"`` adds each epoch to `totals`, such as
    ``{"amount": "sum", "orders": "count"}``, exactly once. `dead_letters` is a sink that gets the rows which the table
    cannot hold, in the same epoch. Secrets and all else about the cluster are in `connection`, limits in `tuning`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keyspace, self._table = self.names
        self._endpoint = Endpoint.of(self.cluster)
        self._folders: dict[str, tuple[SinkFiles, str]] = {}  # a cache: where a folder is
        self._stamp = 0  # the latest that this process has seen

    @property
    def target(self) -> str:
        """The table as guard, status and logs name it."""
        return f"cassandra:{','.join(self._endpoint.contact_points)}/{self._keyspace}.{self._table}"

    @property
    def _adds(self) -> bool:
        return self.mode == "accumulate"

    @property
    def rolls(self) -> None:
        return None

    @property
    def audits(self) -> CassandraSink:
        return self

    def describe(self) -> dict[str, Json]:
        description: dict[str, Json] = {
            **super().describe(),
            **described(self.cluster),
            "target": self.target,
            "totals": {**self.total_columns},
        }
        if self.staging is None:
            del description["staging"]
        else:
            description["staging"] = self._place("")[1]
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """The same, with secrets from the environment, if at all."""
        sink = super().from_description(description)
        sink._endpoint = Endpoint.of(sink.cluster, from_journal=True)
        return sink

    def open(self, lineage: str) -> Memory:
        with naming(self.name):
            table = self._live_table()
            return self._ledger().read().memory(lineage, self.target, adds=self._adds, identity=table.identity)

    def claim(self, claim: Claim, *, version: int) -> bool:
        with naming(self.name):
            return self._ledger().claim(claim, version=version, adds=self._adds)

    def withdraw(self, claim: Claim) -> None:
        with naming(self.name):
            self._ledger().withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        with naming(self.name):
            return self._ledger().claims().holder(lineage)

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

        with naming(self.name):
            table = self._live_table()
        faults = faults_of(table, json.loads(rows.schema.json()), self)
        named = [name for name in (*self.drop, self.expires_at) if name is not None]
        faults += [
            f"{name}: named in an option, and not in the frame{nearest(name, rows.columns)}"
            for name in named
            if name not in rows.columns
        ]
        if not faults:
            try:
                self._beside(rows)
            except AnalysisException as fault:
                faults.append(f"delete_when or expires_at: {fault.getMessage()}".partition("\n")[0])
        return faults

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        with naming(self.name):
            return self._stage(batch)

    def _stage(self, batch: Batch[DataFrame]) -> Staged:
        from pyspark.errors import AnalysisException, PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        attempt, rows = batch.attempt, batch.rows
        files, home = self._place(batch.scratch)
        table, shape, expiry = self._shape(rows)
        folder = join(home_of(home, attempt), "data")
        counter, peaks = Observation(), Observation()
        tall = [name for name, how in self.total_columns.items() if how == "sum" and name in _limits(shape)]
        failpoints.hit("before-write")
        try:
            frame = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
            frame = self._accepted(frame, shape) if self.dead_letters is not None else frame
            frame = self._written(frame, table)
            if tall:
                frame = frame.observe(peaks, *frames.extremes(tall))
            sorted_frame = frames.by_key(self._beside(frame), shape, self._tasks(rows.sparkSession))
            encoded = frames.encoded(sorted_frame, shape)
            place = spark_path(folder)
            wrote = write_counts.counted(rows.sparkSession, place, lambda: frames.write(encoded, place))
        except PySparkException as fault:
            reason = reason_of(fault)
            if "No module named 'epochal" in str(fault):
                raise Refused(
                    f"sink {self.name!r}: the executors' Python has no epochal. Nothing was written. Install "
                    "epochal[cassandra] there, or name the interpreter that has it: PYSPARK_PYTHON"
                ) from fault
            if reason is None and not isinstance(fault, AnalysisException):
                raise
            raise BadRows(
                f"sink {self.name!r}: {reason or fault.getMessage()}. Nothing of the epoch was written"
            ) from fault
        failpoints.hit("after-write")
        listed = frames.listed(files, folder) if wrote.rows else {}
        whole = wrote.fits(listed.values())
        found = frames.measured(rows.sparkSession, folder, listed) if whole else ()
        if not whole or wrote.rows != sum(count for _, _, count in found):
            raise Refused(
                f"sink {self.name!r}: not all rows that Spark wrote to {folder} are there. Do "
                "the driver and the executors see the same file system? Nothing of the epoch was written"
            )
        self._stamp = stamp = self._ledger().take_stamp(attempt.lineage, self._stamp)
        epoch = StagedEpoch(
            table=f"{self._keyspace}.{self._table}",
            mode=self.mode,
            columns=tuple(shape.kinds),
            key=table.key,
            files=found,
            stamp=stamp,
            expiry=expiry,
            expires=shape.expires,
            whole=set(shape.kinds) == set(table.columns) and self.nulls == "tombstone",
            totals=self.total_columns,
            limits=_limits(shape),
            mark=self.mark,
            offsets=batch.offsets,
            identity=table.identity,
            types={name: str(table.columns[name]) for name in self._stored(shape)},
        )
        if tall and max(abs(peak or 0) for peak in peaks.get.values()) > SMALL:
            self._committer(attempt).check_totals(attempt, epoch)
        files.sync_all([join(folder, name) for name, _, _ in found], within=self._within(home))
        return Staged(epoch.handle(), int(counter.get.get("rows", 0)))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        epoch = StagedEpoch.read(handle)
        self._stamp = max(self._stamp, epoch.stamp)  # also if this fails: the next epoch must be later
        with naming(self.name, waits=False):
            return self._committer(attempt).commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        files, home = self._place(attempt.scratch)
        files.delete(home_of(home, attempt))

    def audit(self, scope: Scope) -> StoreReport:
        """What the ledger says. Rows that were upserted may be overwritten, deleted or expired by now."""
        with naming(self.name):
            own = self._ledger().read().standings.get(scope.lineage)
        return audit.audited(scope, own, keyspace=self._keyspace, mode=self.mode)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        files, home = self._place(scratch)
        names = files.names(join(home, safe_name(lineage)))
        found = (Attempt.from_key(lineage, name, scratch=scratch) for name in names)
        return [attempt for attempt in found if attempt is not None]

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, with the reason for each."""
        with naming(self.name):
            _, shape, _ = self._shape(rows)
        judged = self._judged(rows, shape)
        return judged.where(judged[ERROR].isNotNull()).select(*_quoted(rows.columns), ERROR)

    def _accepted(self, rows: DataFrame, shape: Shape) -> DataFrame:
        judged = self._judged(rows, shape)
        return judged.where(judged[ERROR].isNull()).select(*_quoted(rows.columns))

    def _judged(self, rows: DataFrame, shape: Shape) -> DataFrame:
        sorted_frame = frames.by_key(self._beside(rows), shape, self._tasks(rows.sparkSession))
        return frames.with_errors(sorted_frame, shape)

    def _beside(self, frame: DataFrame) -> DataFrame:
        return frames.beside(frame, self.order_by, self.delete_when, self.expires_at)

    def _written(self, frame: DataFrame, table: Table) -> DataFrame:
        if self.mode == "accumulate":
            return frames.totalled(frame, table.key, self.total_columns)
        return frame

    def _place(self, scratch: str) -> tuple[SinkFiles, str]:
        """Where epochs are staged: where the user says, or in the stream's scratch folder."""
        if self.staging is None and not scratch:
            raise Refused(f"sink {self.name!r}: no folder to stage in. Use it in an EpochWriter, or set staging=")
        folder = self.staging or spark_path(join(scratch, self.name))
        if folder not in self._folders:
            self._folders[folder] = resolve(folder)
        return self._folders[folder]

    def _within(self, home: str) -> str:
        """The folder from which those that are staged in are synced: the checkpoint, or what holds the folder."""
        return _above(home) if self.staging is not None else _above(_above(home))

    def _committer(self, attempt: Attempt) -> Committer:
        files, home = self._place(attempt.scratch)
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

    def _shape(self, rows: DataFrame) -> tuple[Table, Shape, int | None]:
        """The table as it is now, what a frame becomes in it, and when its rows expire; refused if it does not fit."""
        table = self._live_table()
        shape, expiry = shape_of(self._connection(), table, json.loads(rows.schema.json()), self)
        return table, shape, expiry

    def _stored(self, shape: Shape) -> list[str]:
        """The columns that are written."""
        return [*shape.kinds, *([self.mark] if self._adds else [])]

    def _tasks(self, spark: SparkSession) -> int:
        return self.tuning.tasks or spark.sparkContext.defaultParallelism


def _limits(shape: Shape) -> dict[str, int]:
    return {name: jobs.LIMITS[kind.name] for name, kind in shape.kinds.items() if kind.name in jobs.LIMITS}


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _quoted(names: Sequence[str]) -> list[str]:
    from epochal.sinks.spark.values import quoted

    return [quoted(name) for name in names]
