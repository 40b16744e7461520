"""Cassandra: rows are staged as files of ready-made bytes, and written when the epoch is decided.

Cassandra cannot hide rows, so nothing of an epoch reaches it before the decision. Every write carries
the timestamp that was fixed when the epoch was staged: a repeat, by whomever and however late, changes
nothing. The epoch is in when the ledger says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks import footers
from epochal.sinks.cassandra import job as jobs
from epochal.sinks.cassandra import staging
from epochal.sinks.cassandra.committing import Committer, home_of, uri
from epochal.sinks.cassandra.connection import Connection, Endpoint, connect
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.options import Options, check_endpoint, check_rows, seconds, split_table
from epochal.sinks.cassandra.rows import ERROR, Shape
from epochal.sinks.cassandra.table import Table, misfits, read, unfit_totals, unsortable
from epochal.sinks.enrolment import safe_name
from epochal.sinks.hadoop import resolve
from epochal.sinks.options import Faults
from epochal.sinks.reasons import reason_of
from epochal.txn import failpoints
from epochal.txn.audit import Difference, Found, Scope
from epochal.txn.errors import BadRows, Refused
from epochal.txn.files import Files, is_local, join
from epochal.txn.model import Attempt, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


UNCOUNTED = {
    "upsert": "an upsert that another one has overwritten, deleted or let expire cannot be counted: only that the "
    "ledger has the last epoch was looked at",
    "accumulate": "totals do not tell which rows they were added up from: only that the ledger has the last epoch was "
    "looked at",
}


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
        self._bound: tuple[Files, str] | None = None
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
    def dead_letters(self) -> Participant[DataFrame] | None:
        return self._letters

    def stage_in(self, folder: str) -> None:
        """Where to stage, unless the user has said: the writer tells each start of a query."""
        if self._given_staging is None:
            self._bound = resolve(join(folder, self._name))

    def describe(self) -> dict[str, Json]:
        return {
            "type": "cassandra",
            "name": self._name,
            "target": self.target,
            "table": f"{self._keyspace}.{self._table}",
            "mode": self._options.mode,
            "totals": dict(self._options.totals),
            "staging": self._place()[1],
            **self._endpoint.describe(),
        }

    def open(self, lineage: str) -> Memory:
        self._live_table()
        return self._ledger().memory(lineage)

    def enrol(self, lineage: str, *, adopts: str | None) -> None:
        self._ledger().enrol(lineage, adopts)

    def stage(self, attempt: Attempt, rows: DataFrame, *, offsets: str) -> Staged:
        from pyspark.errors import AnalysisException, PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        files, _ = self._place()
        table, shape = self._shape(rows)
        folder = join(self._home(attempt), "data")
        counter = Observation()
        out = None if footers.tell_all(rows.sparkSession, folder) else Observation()
        failpoints.hit("before-write")
        try:
            frame = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
            frame = self._accepted(frame, shape) if self._letters is not None else frame
            frame = self._written(frame, table)
            sorted_frame = staging.by_key(self._beside(frame), shape, self._tasks(rows.sparkSession))
            encoded = staging.encoded(sorted_frame, shape)
            if out is not None:
                encoded = encoded.observe(out, f.count(f.lit(1)).alias("rows"))
            staging.write(encoded, uri(folder))
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
        found = self._measured(rows.sparkSession, folder)
        if out is not None and int(out.get.get("rows", 0)) != sum(count for _, _, count in found):
            raise Refused(
                f"sink {self._name!r}: not all rows that Spark wrote to {folder} are there. Do "
                "the driver and the executors see the same file system? Nothing of the epoch was written"
            )
        self._stamp = stamp = self._next_stamp(attempt.lineage)
        epoch = StagedEpoch(
            table=f"{self._keyspace}.{self._table}",
            mode=self._options.mode,
            columns=tuple(shape.kinds),
            key=table.key,
            files=found,
            stamp=stamp,
            expiry=self._expiry(table, shape.staged_at),
            expires=shape.expires,
            whole=set(shape.kinds) == set(table.columns) and self._options.nulls == "tombstone",
            totals=self._options.totals,
            limits={name: jobs.LIMITS[k.name] for name, k in shape.kinds.items() if k.name in jobs.LIMITS},
            mark=self._options.mark,
            offsets=offsets,
        )
        for name, _, _ in found:
            files.sync(join(folder, name))
        return Staged(epoch.handle(), int(counter.get.get("rows", 0)))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        epoch = StagedEpoch.read(handle)
        self._stamp = max(self._stamp, epoch.stamp)  # also if this fails: the next epoch must be later
        return self._committer().commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        self._place()[0].delete(self._home(attempt))

    def audit(self, scope: Scope) -> Found:
        """What the ledger says. Rows that were upserted may be overwritten, deleted or expired by now."""
        last = self._ledger().memory(scope.lineage).last
        differences, unproven = [], [UNCOUNTED[self._options.mode]]
        if last < scope.expected.last:
            what = f"is done, and the last epoch in {self._keyspace}.epochal_streams is {last if last >= 0 else 'none'}"
            differences.append(Difference(what, scope.expected.last))
        elif last > scope.expected.through:
            unproven.append(f"epoch {last} is in the ledger and not done in the journal: it is under way")
        return Found(differences=tuple(differences), unproven=tuple(unproven))

    def leftovers(self, lineage: str) -> list[Attempt]:
        files, home = self._place()
        found = (Attempt.from_key(lineage, name) for name in files.names(join(home, safe_name(lineage))))
        return [attempt for attempt in found if attempt is not None]

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, with the reason for each."""
        _, shape = self._shape(rows)
        judged = self._judged(rows, shape)
        return judged.where(judged[ERROR].isNotNull()).select(*_quoted(rows.columns), ERROR)

    def _accepted(self, rows: DataFrame, shape: Shape) -> DataFrame:
        judged = self._judged(rows, shape)
        return judged.where(judged[ERROR].isNull()).select(*_quoted(rows.columns))

    def _judged(self, rows: DataFrame, shape: Shape) -> DataFrame:
        sorted_frame = staging.by_key(self._beside(rows), shape, self._tasks(rows.sparkSession))
        return staging.with_errors(sorted_frame, shape)

    def _beside(self, frame: DataFrame) -> DataFrame:
        options = self._options
        return staging.beside(frame, options.order_by, options.delete_when, options.expires_at)

    def _written(self, frame: DataFrame, table: Table) -> DataFrame:
        if self._options.mode == "accumulate":
            return staging.totalled(frame, table.key, self._options.totals)
        return frame

    def _place(self) -> tuple[Files, str]:
        """Where epochs are staged."""
        if self._bound is None:
            if self._given_staging is None:
                raise Refused(f"sink {self._name!r}: no folder to stage in. Use it in an EpochWriter, or set staging=")
            self._bound = resolve(self._given_staging)
        return self._bound

    def _committer(self) -> Committer:
        files, home = self._place()
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

    def _home(self, attempt: Attempt) -> str:
        return home_of(self._place()[1], attempt)

    def _connection(self) -> Connection:
        return connect(self._endpoint)

    def _ledger(self) -> Ledger:
        return Ledger(self._connection, self._keyspace, self._table, self.target)

    def _live_table(self) -> Table:
        try:
            return read(self._connection(), self._keyspace, self._table)
        except Refused as fault:
            raise Refused(f"sink {self._name!r}: {fault}") from None

    def _shape(self, rows: DataFrame) -> tuple[Table, Shape]:
        """The table as it is now and what a frame becomes in it; refused if it does not fit."""
        options = self._options
        table = self._live_table()
        schema = json.loads(rows.schema.json())
        kept = {**schema, "fields": [f for f in schema["fields"] if f["name"] not in options.drop]}
        accumulating = options.mode == "accumulate"
        faults = unfit_totals(table, kept, options) if accumulating else misfits(table, kept)
        faults += unsortable(schema, options.order_by)
        if faults:
            lines = "".join(f"\n  - {fault}" for fault in faults)
            raise BadRows(
                f"sink {self._name!r}: the frame does not fit the table {self._keyspace}.{self._table}:{lines}\n"
                "Nothing of the epoch was written"
            )
        names = [*table.key, *options.totals] if accumulating else [field["name"] for field in kept["fields"]]
        return table, Shape(
            kinds={name: table.columns[name] for name in names},
            partition_key=table.partition_key,
            clustering_key=table.clustering_key,
            order=tuple(f"{staging.ORDER}{n}" for n in range(len(options.order_by))),
            truncate=options.timestamps == "truncate",
            max_row_bytes=options.max_row_bytes,
            deletes=options.delete_when is not None,
            expires=options.expires_at is not None,
            staged_at=int(time.time()),
            unset=options.nulls == "unset",
            accumulates=accumulating,
        )

    def _tasks(self, spark: SparkSession) -> int:
        return self._options.tasks or spark.sparkContext.defaultParallelism

    def _expiry(self, table: Table, staged_at: int) -> int | None:
        """When rows that bring no time of their own expire."""
        # The table's own default would start again with each repeat, so it is sent as a time too.
        ttl = self._options.ttl or (None if self._options.mode == "accumulate" else table.default_ttl or None)
        return None if ttl is None else staged_at + ttl

    def _next_stamp(self, lineage: str) -> int:
        """In touch with the clock, later than anything this stream has written, and even: deletes come first."""
        standing = self._ledger().standing(lineage)
        last = max(self._stamp, standing.stamp if standing else 0)
        return max(time.time_ns() // 1000, last + 2) // 2 * 2

    def _measured(self, spark: SparkSession, folder: str) -> tuple[tuple[str, int, int], ...]:
        """(name, bytes, rows) of each staged file that has rows."""
        files, _ = self._place()
        listed = [(e.name, e.length) for e in files.walk(folder) if not e.name.startswith(("_", "."))]
        if is_local(folder):
            from pyarrow.parquet import read_metadata

            counts = {name: read_metadata(join(folder, name)).num_rows for name, _ in listed}
        else:
            counted = spark.read.parquet(folder).selectExpr("_metadata.file_name AS n").groupBy("n").count()
            counts = {row["n"]: row["count"] for row in counted.collect()} if listed else {}
        return tuple((name, size, counts[name]) for name, size in listed if counts.get(name))


def from_description(description: Mapping[str, Json]) -> CassandraSink:
    """A sink that can commit and abort what a journal describes. Secrets come from the environment."""
    given: dict[str, Any] = dict(description)
    staging_place = str(given["staging"])
    return CassandraSink(
        str(given["table"]),
        name=str(given["name"]),
        mode=str(given["mode"]),
        totals=given["totals"],
        staging=f"file:{staging_place}" if staging_place.startswith("/") else staging_place,
        **{
            key: given[key]
            for key in (
                *("contact_points", "port", "datacenter", "consistency"),
                *("tls", "ca_file", "cert_file", "key_file"),
            )
        },
    )


def _quoted(names: Sequence[str]) -> list[str]:
    from epochal.sinks.values import quoted

    return [quoted(name) for name in names]
