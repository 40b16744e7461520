"""The second phase, in the executors: staged bytes become bounded streams of batches.

Rows of one partition go together in one unlogged batch, which the server applies as one write.
Partitions of a single row are gathered by the replica that owns them, few enough for the server not
to mind. Whatever fails for a reason that may pass is sent again, with the same timestamp: Cassandra
keeps one copy. An error is never taken for "not written".
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra.connection import Connection, brief, is_away
from epochal.txn.errors import StoreAway

if TYPE_CHECKING:
    import pyarrow as pa
    from cassandra.cluster import ResponseFuture
    from cassandra.query import Statement

KEY, BYTES, DELETE, EXPIRY = "_key", "_bytes", "_delete", "_expiry"  # staged beside the columns
BATCH_BYTES = 48 * 1024
# The server warns of unlogged batches over more than 10 partitions, or of more than 5 KiB over several.
SPREAD_ROWS, SPREAD_BYTES = 10, 4 * 1024
PATIENCE = 30.0  # seconds for one request; then the whole commit is tried again, later
Value = bytes | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send for the rows of one epoch."""

    keyspace: str
    insert: str
    delete: str
    forget: str  # what becomes of a row whose time is over before it is written
    columns: tuple[str, ...]
    key: tuple[str, ...]
    stamp: int
    nulls: str
    expiry: int | None  # seconds since 1970, for rows that bring none
    expiring: bool
    in_flight: int
    batch_rows: int


class Pipe:
    """Sends statements, so many at a time."""

    def __init__(
        self,
        connection: Connection,
        in_flight: int,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = connection.session
        self._limit = self._most = in_flight
        self._patience, self._clock, self._sleep = patience, clock, sleep
        self._waiting: deque[tuple[Statement, ResponseFuture]] = deque()
        self._calm = 0

    def send(self, statement: Statement) -> None:
        while len(self._waiting) >= self._limit:
            self._settle_one()
        self._waiting.append((statement, self._session.execute_async(statement)))

    def drain(self) -> None:
        """Every statement has been acknowledged."""
        while self._waiting:
            self._settle_one()

    def _settle_one(self) -> None:
        statement, future = self._waiting.popleft()
        try:
            future.result()
        except Exception as fault:
            if not is_away(fault):
                raise
            self._limit = max(1, self._limit // 2)  # an overloaded server is not helped by as many again
            self._calm = 0
            self.again(statement, fault)
            return
        self._calm += 1
        if self._calm > 100 and self._limit < self._most:
            self._limit, self._calm = self._limit + 1, 0

    def again(self, statement: Statement, fault: Exception) -> list[Any]:
        """Send a statement until it is answered; StoreAway when patience is at its end."""
        end = self._clock() + self._patience
        pause = 0.05
        while self._clock() + pause < end:
            self._sleep(pause)
            try:
                return list(self._session.execute(statement))
            except Exception as again:
                if not is_away(again):
                    raise
                fault = again
            pause = min(2.0, 2 * pause)
        raise StoreAway(brief(fault)) from fault


class Writer:
    """Writes staged rows of one epoch."""

    def __init__(self, connection: Connection, plan: Plan, *, now: Callable[[], float] = time.time) -> None:
        from cassandra.query import UNSET_VALUE

        self._connection, self._plan, self._now = connection, plan, now
        self._pipe = Pipe(connection, plan.in_flight)
        self._insert = connection.prepared(plan.insert)
        self._delete = connection.prepared(plan.delete)
        self._forget = connection.prepared(plan.forget)
        self._absent: Any = UNSET_VALUE if plan.nulls == "unset" else None
        self._upsert_stamp = struct.pack(">q", plan.stamp + 1)
        self._delete_stamp = struct.pack(">q", plan.stamp)
        self._keys = [plan.columns.index(name) for name in plan.key]
        metadata = connection.session.cluster.metadata
        self._replicas = metadata.get_replicas
        self._alone = len(metadata.all_hosts()) == 1
        self._spread: dict[Any, tuple[list[Any], int]] = {}

    def write(self, batch: pa.RecordBatch) -> int:
        """Send one batch of Arrow's, sorted by partition; how many rows it had."""
        columns = [batch.column(name).to_pylist() for name in self._plan.columns]
        keys = batch.column(KEY).to_pylist()
        sizes = batch.column(BYTES).to_pylist()
        deletes = batch.column(DELETE).to_pylist() if DELETE in batch.schema.names else None
        expiries = batch.column(EXPIRY).to_pylist() if EXPIRY in batch.schema.names else None
        group: list[Any] = []
        current: bytes | None = None
        size = 0
        for row, values in enumerate(zip(*columns, strict=True)):
            key = keys[row]
            full = len(group) >= self._plan.batch_rows or size + sizes[row] > BATCH_BYTES
            if group and (key != current or full):
                self._send_group(current, group, size)
                group, size = [], 0
            current = key
            size += sizes[row]
            gone = deletes is not None and deletes[row]
            group.append(self._bound(values, key, gone=gone, expiry=expiries[row] if expiries else self._plan.expiry))
        if group:
            self._send_group(current, group, size)
        return int(batch.num_rows)

    def finish(self) -> None:
        """Everything that was written has been acknowledged."""
        for group, _ in self._spread.values():
            self._send(group)
        self._spread.clear()
        self._pipe.drain()

    def _bound(self, values: tuple[Value, ...], key: bytes, *, gone: bool, expiry: int | None) -> Any:
        from cassandra.query import BoundStatement

        remaining = 0 if expiry is None else expiry - int(self._now())
        if gone:
            found = BoundStatement(self._delete, routing_key=key)
            found.values = [self._delete_stamp, *(values[i] for i in self._keys)]
        elif expiry is not None and remaining <= 0:
            # Over before it was written, or written again after it was over: it must not come back.
            found = BoundStatement(self._forget, routing_key=key)
            stamp = self._upsert_stamp
            found.values = [stamp, *(values[i] for i in self._keys)]
        else:
            found = BoundStatement(self._insert, routing_key=key)
            absent = self._absent
            found.values = [absent if value is None else value for value in values]
            found.values.append(self._upsert_stamp)
            if self._plan.expiring:
                found.values.append(struct.pack(">i", remaining))
        return found

    def _send_group(self, key: bytes | None, group: list[Any], size: int) -> None:
        if len(group) > 1 or size > SPREAD_BYTES // 2:
            self._send(group)
            return
        owner = None if self._alone else self._owner(key)
        gathered, bytes_ = self._spread.get(owner, ([], 0))
        if len(gathered) >= SPREAD_ROWS or (gathered and bytes_ + size > SPREAD_BYTES):
            self._send(gathered)
            gathered, bytes_ = [], 0
        gathered.extend(group)
        self._spread[owner] = (gathered, bytes_ + size)

    def _owner(self, key: bytes | None) -> Any:
        replicas = self._replicas(self._plan.keyspace, key)
        return tuple(replicas) if replicas else None

    def _send(self, group: Sequence[Any]) -> None:
        from cassandra.query import BatchStatement, BatchType

        if len(group) == 1:
            self._pipe.send(group[0])
            return
        batch = BatchStatement(BatchType.UNLOGGED)
        for statement in group:
            batch.add(statement)
        self._pipe.send(batch)
