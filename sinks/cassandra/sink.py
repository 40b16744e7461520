"""Cassandra: rows are staged as files of ready-made bytes, and written when the epoch is decided.

Cassandra cannot hide rows, so nothing of an epoch reaches it before the decision. Every write carries
the timestamp that was fixed when the epoch was staged: a repeat, by whomever and however late, changes
nothing. The epoch is in when the ledger says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra import audit
from epochal.sinks.cassandra.cluster.connection import Connection, connect
from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.cluster.faults import naming
from epochal.sinks.cassandra.commit import job as jobs
from epochal.sinks.cassandra.commit.committer import Committer
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.layout import home_of
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.options import Options, check_endpoint, check_rows, seconds, split_table
from epochal.sinks.cassandra.stage import frames
from epochal.sinks.cassandra.stage.rows import ERROR, Shape
from epochal.sinks.cassandra.stage.shaping import faults_of, shape_of
from epochal.sinks.cassandra.table import Table, read
from epochal.sinks.config.options import Faults, known_options, nearest
from epochal.sinks.spark import write_counts
from epochal.sinks.spark.reasons import reason_of
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.register import safe_name
from epochal.txn import failpoints
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.errors import BadRows, Refused
from epochal.txn.files import JoiningFiles, join
from epochal.txn.model import Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger("epochal")

# What an epoch adds to a total. If it is no more than this, totals are not read while it is staged: those of larger
# epochs were, and half of a column's range was left for some 2^30 small ones.
SMALL = 1 << 32


class CassandraSink:
    """A Cassandra table that gets each epoch once, however often it is sent.

    >>> CassandraSink("shop.orders", contact_points=["127.0.0.1"], order_by=["updated_at"])
    CassandraSink('shop.orders', mode='upsert', name='cassandra')

    `mode`: ``"upsert"`` writes rows by primary key; of several rows of a key in one epoch the last by
    `order_by` wins, those for which the SQL condition `delete_when` holds delete their row, and columns
    in `drop` are there for these two (and for `expires_at`) only. ``"accumulate"`` adds each epoch to
    `totals`, such as ``{"amount": "sum", "orders": "count"}``, exactly once; the table has a text column
    `mark` for it. `nulls`: ``"tombstone"`` writes them, ``"unset"`` leaves the column as it is.
    `ttl` (from staging on) or `expires_at` (a timestamp column) let rows expire. `dead_letters` is a
    sink that gets the rows which the table cannot hold, in the same epoch, with the reason in a
    column `_error`. `staging` is a folder that driver and executors reach, if not in the checkpoint.
    User and password may also come from EPOCHAL_CASSANDRA_USER and EPOCHAL_CASSANDRA_PASSWORD.
    """

    @known_options
    def __init__(
        self,
        table: str,
        *,
        contact_points: Sequence[str] = ("127.0.0.1",),
        port: int = 9042,
        name: str = "cassandra",
        mode: str = "upsert",
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        drop: Sequence[str] = (),
        totals: Mapping[str, str] | None = None,
        mark: str = "epochal",
        nulls: str = "tombstone",
        timestamps: str = "exact",
        ttl: int | str | None = None,
        expires_at: str | None = None,
        dead_letters: Participant[DataFrame] | None = None,
        datacenter: str | None = None,
        consistency: str = "LOCAL_QUORUM",
        user: str | None = None,
        password: str | None = None,
        tls: bool = False,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        staging: str | None = None,
        max_row_bytes: int = 4 * 1024 * 1024,
        in_flight: int = 32,
        batch_rows: int = 50,
        tasks: int | None = None,
    ) -> None:
        faults = Faults(f"CassandraSink({table!r})")
        self._keyspace, self._table = split_table(table, faults)
        faults.sink_name(name)
        check_endpoint(
            faults,
            contact_points=contact_points,
            port=port,
            datacenter=datacenter,
            consistency=consistency,
            tls=tls,
            files={"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file},
            user=user,
            password=password,
        )
        self._endpoint = Endpoint(
            contact_points=tuple(contact_points) if not isinstance(contact_points, str) else (),
            port=port,
            datacenter=datacenter,
            consistency=consistency,
            tls=tls,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            user=user,
            password=password,
        )
        good_totals = totals is None or isinstance(totals, Mapping)
        faults.check(good_totals, "totals: a dictionary, such as {'amount': 'sum'}")
        self._options = Options(
            mode=mode,
            order_by=faults.column_names("order_by", order_by),
            delete_when=delete_when,
            drop=faults.column_names("drop", drop),
            totals=dict(totals) if totals and good_totals else {},
            mark=mark,
            nulls=nulls,
            timestamps=timestamps,
            ttl=seconds(ttl),
            expires_at=expires_at,
            max_row_bytes=max_row_bytes,
            in_flight=in_flight,
            batch_rows=batch_rows,
            tasks=tasks,
        )
        check_rows(faults, self._options, self._endpoint, ttl)
        faults.check(staging is None or (isinstance(staging, str) and staging != ""), "staging: a folder or URI")
        faults.check(
            dead_letters is None or hasattr(dead_letters, "stage"), f"dead_letters={dead_letters!r}: a sink, or None"
        )
        faults.done()
        self._name = name
        self._given_staging = staging
        self._letters = dead_letters
        self._folders: dict[str, tuple[JoiningFiles, str]] = {}  # a cache: where a folder is
        self._stamp = 0  # the latest that this process has seen

    def __repr__(self) -> str:
        return f"CassandraSink('{self._keyspace}.{self._table}', mode={self._options.mode!r}, name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def target(self) -> str:
        """The table as guard, status and logs name it."""
        return f"cassandra:{','.join(self._endpoint.contact_points)}/{self._keyspace}.{self._table}"

    @property
    def _adds(self) -> bool:
        return self._options.mode == "accumulate"

    @property
    def dead_letters(self) -> Participant[DataFrame] | None:
        return self._letters

    @property
    def rolls(self) -> None:
        return None

    @property
    def audits(self) -> CassandraSink:
        return self

    def describe(self) -> dict[str, Json]:
        staging = {} if self._given_staging is None else {"staging": self._place("")[1]}
        return {
            "type": "cassandra",
            "name": self._name,
            "target": self.target,
            "table": f"{self._keyspace}.{self._table}",
            "mode": self._options.mode,
            "totals": dict(self._options.totals),
            **staging,
            **self._endpoint.describe(),
        }

    def open(self, lineage: str) -> Memory:
        with naming(self._name):
            table = self._live_table()
            return self._ledger().read().memory(lineage, self.target, adds=self._adds, identity=table.identity)

    def claim(self, claim: Claim, *, version: int) -> bool:
        with naming(self._name):
            return self._ledger().claim(claim, version=version, adds=self._adds)

    def withdraw(self, claim: Claim) -> None:
        with naming(self._name):
            self._ledger().withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        with naming(self._name):
            return self._ledger().claims().holder(lineage)

    def check_output_mode(self, mode: str) -> None:
        adds = [name for name, how in self._options.totals.items() if how in ("sum", "count")]
        if mode == "complete" and adds:
            raise Refused(
                f"sink {self._name!r} adds each epoch's rows to {', '.join(adds)}, and the output mode complete gives "
                "all rows again in each epoch. Nothing was written. Give it the single rows, with "
                "outputMode('append'); or use mode='upsert', which replaces totals"
            )
        if mode == "update" and adds:
            log.warning(
                "sink %r adds up %s: an aggregation whose output mode is update gives totals again, which would be "
                "added several times",
                self._name,
                ", ".join(adds),
            )

    def check_frame(self, rows: DataFrame) -> list[str]:
        from pyspark.errors import AnalysisException

        with naming(self._name):
            table = self._live_table()
        faults = faults_of(table, json.loads(rows.schema.json()), self._options)
        named = [name for name in (*self._options.drop, self._options.expires_at) if name is not None]
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
        with naming(self._name):
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
        tall = [name for name, how in self._options.totals.items() if how == "sum" and name in _limits(shape)]
        failpoints.hit("before-write")
        try:
            frame = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
            frame = self._accepted(frame, shape) if self._letters is not None else frame
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
                    f"sink {self._name!r}: the executors' Python has no epochal. Nothing was written. Install "
                    "epochal[cassandra] there, or name the interpreter that has it: PYSPARK_PYTHON"
                ) from fault
            if reason is None and not isinstance(fault, AnalysisException):
                raise
            raise BadRows(
                f"sink {self._name!r}: {reason or fault.getMessage()}. Nothing of the epoch was written"
            ) from fault
        failpoints.hit("after-write")
        listed = frames.listed(files, folder) if wrote.rows else {}
        whole = wrote.fits(listed.values())
        found = frames.measured(rows.sparkSession, folder, listed) if whole else ()
        if not whole or wrote.rows != sum(count for _, _, count in found):
            raise Refused(
                f"sink {self._name!r}: not all rows that Spark wrote to {folder} are there. Do "
                "the driver and the executors see the same file system? Nothing of the epoch was written"
            )
        self._stamp = stamp = self._ledger().take_stamp(attempt.lineage, self._stamp)
        epoch = StagedEpoch(
            table=f"{self._keyspace}.{self._table}",
            mode=self._options.mode,
            columns=tuple(shape.kinds),
            key=table.key,
            files=found,
            stamp=stamp,
            expiry=expiry,
            expires=shape.expires,
            whole=set(shape.kinds) == set(table.columns) and self._options.nulls == "tombstone",
            totals=self._options.totals,
            limits=_limits(shape),
            mark=self._options.mark,
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
        with naming(self._name, waits=False):
            return self._committer(attempt).commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        files, home = self._place(attempt.scratch)
        files.delete(home_of(home, attempt))

    def audit(self, scope: Scope) -> StoreReport:
        """What the ledger says. Rows that were upserted may be overwritten, deleted or expired by now."""
        with naming(self._name):
            own = self._ledger().read().standings.get(scope.lineage)
        return audit.audited(scope, own, keyspace=self._keyspace, mode=self._options.mode)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        files, home = self._place(scratch)
        names = files.names(join(home, safe_name(lineage)))
        found = (Attempt.from_key(lineage, name, scratch=scratch) for name in names)
        return [attempt for attempt in found if attempt is not None]

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, with the reason for each."""
        with naming(self._name):
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
        options = self._options
        return frames.beside(frame, options.order_by, options.delete_when, options.expires_at)

    def _written(self, frame: DataFrame, table: Table) -> DataFrame:
        if self._options.mode == "accumulate":
            return frames.totalled(frame, table.key, self._options.totals)
        return frame

    def _place(self, scratch: str) -> tuple[JoiningFiles, str]:
        """Where epochs are staged: where the user says, or in the stream's scratch folder."""
        if self._given_staging is None and not scratch:
            raise Refused(f"sink {self._name!r}: no folder to stage in. Use it in an EpochWriter, or set staging=")
        folder = self._given_staging or spark_path(join(scratch, self._name))
        if folder not in self._folders:
            self._folders[folder] = resolve(folder)
        return self._folders[folder]

    def _within(self, home: str) -> str:
        """The folder from which those that are staged in are synced: the checkpoint, or what holds the folder."""
        return _above(home) if self._given_staging is not None else _above(_above(home))

    def _committer(self, attempt: Attempt) -> Committer:
        files, home = self._place(attempt.scratch)
        return Committer(
            name=self._name,
            endpoint=self._endpoint,
            keyspace=self._keyspace,
            table=self._table,
            in_flight=self._options.in_flight,
            batch_rows=self._options.batch_rows,
            ledger=self._ledger(),
            files=files,
            staging=home,
        )

    def _connection(self) -> Connection:
        return connect(self._endpoint)

    def _ledger(self) -> Ledger:
        return Ledger(self._connection, self._keyspace, self._table)

    def _live_table(self) -> Table:
        return read(self._connection(), self._keyspace, self._table)

    def _shape(self, rows: DataFrame) -> tuple[Table, Shape, int | None]:
        """The table as it is now, what a frame becomes in it, and when its rows expire; refused if it does not fit."""
        table = self._live_table()
        shape, expiry = shape_of(self._connection(), table, json.loads(rows.schema.json()), self._options)
        return table, shape, expiry

    def _stored(self, shape: Shape) -> list[str]:
        """The columns that are written."""
        return [*shape.kinds, *([self._options.mark] if self._adds else [])]

    def _tasks(self, spark: SparkSession) -> int:
        return self._options.tasks or spark.sparkContext.defaultParallelism


def from_description(description: Mapping[str, Json]) -> CassandraSink:
    """A sink that can commit and abort what a journal describes. Secrets come from the environment, if at all."""
    given: dict[str, Any] = dict(description)
    sink = CassandraSink(
        str(given["table"]),
        name=str(given["name"]),
        mode=str(given["mode"]),
        totals=given["totals"],
        staging=spark_path(str(given["staging"])) if given.get("staging") else None,
        **{
            key: given[key]
            for key in (
                *("contact_points", "port", "datacenter", "consistency"),
                *("tls", "ca_file", "cert_file", "key_file"),
            )
        },
    )
    sink._endpoint = replace(sink._endpoint, from_journal=True)
    return sink


def _limits(shape: Shape) -> dict[str, int]:
    return {name: jobs.LIMITS[kind.name] for name, kind in shape.kinds.items() if kind.name in jobs.LIMITS}


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _quoted(names: Sequence[str]) -> list[str]:
    from epochal.sinks.spark.values import quoted

    return [quoted(name) for name in names]
