"""Totals that survive replays: read, add, write with the epoch's own timestamp and mark.

Cassandra's counters count a repeated increment twice. Here the row itself says up to which epoch its
totals go: its mark, ``lineage@epoch``, is written together with them, in one write that the server
applies as a whole.

====================================  ==============================================================
the mark says                         what happens
====================================  ==============================================================
nothing                               the totals that are there are what the epoch adds to
an earlier epoch of this stream,      the same
or any of one whose place it took
this epoch                            the same totals are written once more: perhaps not every
                                      replica had them
a later epoch                         nothing: this is a driver that slept
another stream                        refused
====================================  ==============================================================

Two that commit the same epoch read the same totals, add the same and write the same. One that slept
writes with the timestamp of its epoch, which is older than that of any later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.faults import is_away
from epochal.sinks.cassandra.commit.writer import Pipe, Plan
from epochal.sinks.cassandra.layout import KEY
from epochal.txn.errors import Refused, TwoJournals

if TYPE_CHECKING:
    import pyarrow as pa


# Python's own context would round to 28 digits.
EXACT = Context(prec=100_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


@dataclass(frozen=True, slots=True)
class Adding:
    """What accumulating needs beside the plan."""

    select: str
    totals: Mapping[str, str]  # column -> sum, count, min or max
    limits: Mapping[str, int]  # column -> bits of a whole number, where it has so many
    lineages: tuple[str, ...]  # ours, and those whose place it took
    epoch: int
    maker: str = ""  # which attempt it is: copies of a journal have attempts of the same number
    dry: bool = False  # only see whether the totals fit


def mark(lineage: str, epoch: int, maker: str = "") -> str:
    """What a row's totals say about themselves.

    >>> mark("1f0c9a2e", 42, "3.5a17")
    '1f0c9a2e@42:3.5a17'
    """
    return f"{lineage}@{epoch}" + (f":{maker}" if maker else "")


def added(how: str, before: Any, more: Any) -> Any:
    """A total after an epoch.

    >>> added("sum", 3, 4), added("max", None, 4), added("min", 3, None)
    (7, 4, 3)
    """
    if before is None or more is None:
        return more if before is None else before
    if how in ("sum", "count"):
        return EXACT.add(before, more) if isinstance(before, Decimal) else before + more
    return min(before, more) if how == "min" else max(before, more)


class Adder:
    """Adds staged rows to the totals of one table."""

    def __init__(self, connection: ClusterSession, plan: Plan, adding: Adding) -> None:
        self._session, self._plan, self._adding = connection.session, plan, adding
        self._select = connection.prepared(adding.select)
        self._insert = connection.prepared(plan.insert)
        self._types = {column.name: column.type for column in self._insert.column_metadata}
        self._version = self._insert.protocol_version
        self._pipe = Pipe(connection, plan.in_flight)

    def write(self, batch: pa.RecordBatch) -> int:
        columns = {name: batch.column(name).to_pylist() for name in self._plan.columns}
        keys = batch.column(KEY).to_pylist()
        window = 4 * self._plan.in_flight
        for start in range(0, batch.num_rows, window):
            rows = range(start, min(start + window, batch.num_rows))
            asked = [(row, self._ask(tuple(columns[name][row] for name in self._plan.key), keys[row])) for row in rows]
            for row, (statement, future) in asked:
                found = self._answer(statement, future)
                values = {name: columns[name][row] for name in self._plan.columns}
                self._add(values, keys[row], found)
        return int(batch.num_rows)

    def finish(self) -> None:
        self._pipe.drain()

    def _ask(self, key: tuple[bytes, ...], routing_key: bytes) -> tuple[Any, Any]:
        from cassandra.query import BoundStatement

        statement = BoundStatement(self._select, routing_key=routing_key)
        statement.values = list(key)
        return statement, self._session.execute_async(statement)

    def _answer(self, statement: Any, future: Any) -> tuple[Any, ...] | None:
        try:
            found = list(future.result())
        except Exception as fault:
            if not is_away(fault):
                raise
            found = self._pipe.again(statement, fault)
        return found[0] if found else None

    def _add(self, staged: Mapping[str, bytes | None], key: bytes, found: tuple[Any, ...] | None) -> None:
        from cassandra.query import UNSET_VALUE, BoundStatement

        names = tuple(self._adding.totals)
        before = dict(zip(names, found or (), strict=False))
        epoch = self._epoch_of(found[-1] if found else None)
        if epoch is not None and epoch > self._adding.epoch:
            return
        statement = BoundStatement(self._insert, routing_key=key)
        values: list[Any] = [staged[name] for name in self._plan.key]
        for name, how in self._adding.totals.items():
            total = before.get(name)
            if epoch != self._adding.epoch:
                raw = staged[name]
                more = None if raw is None else self._types[name].deserialize(raw, self._version)
                total = added(how, total, more)
                self._check(name, total)
            # An absent total stays absent: a null would be a tombstone.
            values.append(UNSET_VALUE if total is None else self._types[name].serialize(total, self._version))
        values.append(mark(self._adding.lineages[0], self._adding.epoch, self._adding.maker).encode())
        if self._adding.dry:
            return
        statement.values = [*values, (self._plan.stamp + 1).to_bytes(8, "big", signed=True)]
        self._pipe.send(statement)

    def _epoch_of(self, text: str | None) -> int | None:
        """The epoch of ours that the totals have; None if they have none yet."""
        if text is None:
            return None
        lineage, _, attempt = text.rpartition("@")
        epoch, _, maker = attempt.partition(":")
        if lineage == self._adding.lineages[0]:
            if int(epoch) == self._adding.epoch and maker != self._adding.maker and maker and self._adding.maker:
                raise TwoJournals(
                    f"a row's totals have epoch {epoch} from another start of this stream: two journals write it, so "
                    "one checkpoint is a copy. Nothing was added to it. Go on with the checkpoint that wrote it"
                )
            return int(epoch)
        if lineage in self._adding.lineages:
            return None
        raise Refused(
            "a row's totals were accumulated by another stream, and two cannot add to the same ones. Nothing was "
            "added to it. Give each stream a table of its own"
        )

    def _check(self, name: str, total: Any) -> None:
        bits = self._adding.limits.get(name)
        if bits is not None and total is not None and not -(1 << bits) <= total < 1 << bits:
            raise Refused(
                f"a total of {name} would become larger than 2^{bits}, which is too large for its column. Nothing was "
                "added to it. Store it as varint, in another table; or lower it by hand"
            )
