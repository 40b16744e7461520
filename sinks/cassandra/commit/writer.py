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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.faults import brief, is_away
from epochal.sinks.cassandra.cluster.limits import LONGEST_TTL
from epochal.sinks.cassandra.commit import entries as encoded
from epochal.sinks.cassandra.layout import DELETE, EXPIRY, KEY, ROW
from epochal.txn.errors import StoreAway

if TYPE_CHECKING:
    import pyarrow as pa
    from cassandra.cluster import ResponseFuture
    from cassandra.query import Statement

BATCH_BYTES = 48 * 1024
# The server warns of unlogged batches over more than 10 partitions, or of more than 5 KiB over several.
SPREAD_ROWS, SPREAD_BYTES = 10, 4 * 1024
PATIENCE = 30.0  # seconds for one request; then the whole commit is tried again, later


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
    expiry: int | None  # seconds since 1970, for rows that bring none
    expiring: bool
    in_flight: int
    batch_rows: int


class Pipe:
    """Sends statements, so many at a time."""

    def __init__(
        self,
        connection: ClusterSession,
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

    def __init__(self, connection: ClusterSession, plan: Plan) -> None:
        from epochal.sinks.cassandra.cluster.batches import EncodedBatch

        self._plan, self._batch = plan, EncodedBatch
        # The server will count from its own time: what is left of a row's is counted there too.
        self._now = connection.clock() if plan.expiring else float
        self._pipe = Pipe(connection, plan.in_flight)
        insert, delete, forget = (connection.prepared(text) for text in (plan.insert, plan.delete, plan.forget))
        self._held = (insert, delete, forget)  # the driver prepares them again where a server has lost them
        later, stamp = (encoded.value(struct.pack(">q", plan.stamp + more)) for more in (1, 0))
        self._insert = encoded.head(insert.query_id, len(plan.columns) + 1 + plan.expiring)
        self._after = later
        self._delete = encoded.head(delete.query_id, 1 + len(plan.key)) + stamp
        self._forget = encoded.head(forget.query_id, 1 + len(plan.key)) + later
        self._keys = [plan.columns.index(name) for name in plan.key]
        metadata = connection.session.cluster.metadata
        self._replicas = metadata.get_replicas
        self._alone = len(metadata.all_hosts()) == 1
        self._spread: dict[Any, _Gathered] = {}

    def write(self, batch: pa.RecordBatch) -> int:
        """Send one batch of Arrow's, sorted by partition; how many rows it had."""
        if batch.num_rows == 0:
            return 0
        rows = Rows(batch)
        for start, end, key in rows.partitions():
            for first, last in rows.cut(start, end, self._plan.batch_rows):
                entries = self._entries(rows, first, last)
                if last - first > 1 or len(entries[0]) > SPREAD_BYTES // 2:
                    self._send(entries, key)
                else:
                    self._gather(entries[0], key)
        return int(batch.num_rows)

    def finish(self) -> None:
        """Everything that was written has been acknowledged."""
        for gathered in self._spread.values():
            self._send(gathered.entries, gathered.key)
        self._spread.clear()
        self._pipe.drain()

    def _entries(self, rows: Rows, start: int, end: int) -> list[bytes]:
        if rows.deletes is None and rows.expiries is None:
            found = rows.encoded[start:end]
            if not self._plan.expiring:
                return [self._insert + row + self._after for row in found]
            return [self._expiring(row, self._plan.expiry) for row in found]
        entries = []
        for n in range(start, end):
            if rows.deletes is not None and rows.deletes[n]:
                entries.append(self._delete + self._id(rows.encoded[n]))
            else:
                expiry = self._plan.expiry if rows.expiries is None else rows.expiries[n]
                entries.append(self._expiring(rows.encoded[n], expiry))
        return entries

    def _expiring(self, row: bytes, expiry: int | None) -> bytes:
        remaining = 0 if expiry is None else min(LONGEST_TTL, expiry - int(self._now()))
        if expiry is not None and remaining <= 0:
            # Over before it was written, or written again after it was over: it must not come back.
            return self._forget + self._id(row)
        ttl = encoded.value(struct.pack(">i", remaining)) if self._plan.expiring else b""
        return self._insert + row + self._after + ttl

    def _id(self, row: bytes) -> bytes:
        values = encoded.values(row)
        return b"".join(encoded.value(values[n] or b"") for n in self._keys)

    def _gather(self, entry: bytes, key: bytes) -> None:
        """Keep a row that is alone in its partition until others of the same replicas come."""
        owner = None if self._alone else tuple(self._replicas(self._plan.keyspace, key))
        found = self._spread.get(owner)
        if found and (len(found.entries) >= SPREAD_ROWS or found.size + len(entry) > SPREAD_BYTES):
            self._send(found.entries, found.key)
            found = None
        if found is None:
            found = self._spread[owner] = _Gathered(key)
        found.entries.append(entry)
        found.size += len(entry)

    def _send(self, entries: Sequence[bytes], key: bytes) -> None:
        self._pipe.send(self._batch(entries, self._plan.keyspace, key))


@dataclass(slots=True)
class _Gathered:
    key: bytes
    entries: list[bytes] = field(default_factory=list)
    size: int = 0


class Rows:
    """Staged rows, sorted by partition."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        self.encoded: list[bytes] = batch.column(ROW).to_pylist()
        self.deletes: list[bool] | None = batch.column(DELETE).to_pylist() if DELETE in names else None
        self.expiries: list[int | None] | None = batch.column(EXPIRY).to_pylist() if EXPIRY in names else None
        self._keys = batch.column(KEY)

    def partitions(self) -> Iterator[tuple[int, int, bytes]]:
        """Where each partition starts and ends, and its key."""
        starts = [0, *(1 + n for n in changes(self._keys))]
        keys = self._keys.take(starts).to_pylist()
        yield from zip(starts, [*starts[1:], len(self.encoded)], keys, strict=True)

    def cut(self, start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
        """Pieces of a partition that one request may carry."""
        first, size = start, 0
        for n in range(start, end):
            length = len(self.encoded[n])
            if n > first and (n - first >= most or size + length > BATCH_BYTES):
                yield first, n
                first, size = n, 0
            size += length
        yield first, end


def changes(column: pa.Array) -> list[int]:
    """The rows that differ from the next one."""
    import numpy as np
    import pyarrow.compute as pc

    differ = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    found: list[int] = np.flatnonzero(differ.to_numpy(zero_copy_only=False)).tolist()
    return found
