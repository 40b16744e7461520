"""What the store remembers: two small tables of epochal's own, in the target's keyspace.

::

    epochal_streams (target, lineage)         who writes to a table, up to which epoch, at which timestamp
    epochal_parts   (target, lineage) (epoch, part)   what of the epoch under way is written

Being in the target's keyspace they are replicated as it is. An epoch is in when its number is in
`epochal_streams`; that is written by a lightweight transaction, so it only grows, whoever writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from epochal.sinks.cassandra.connection import Connection, translated
from epochal.sinks.cassandra.cql import quoted
from epochal.txn.model import NO_EPOCH, Memory

STREAMS, PARTS = "epochal_streams", "epochal_parts"
RECENT = 50


@dataclass(frozen=True, slots=True)
class Standing:
    """One lineage in a table."""

    lineage: str
    adopts: str | None
    epoch: int
    stamp: int
    recent: dict[int, str]


class Ledger:
    """The rows about one target."""

    def __init__(self, connect: Callable[[], Connection], keyspace: str, table: str, target: str) -> None:
        self._connect = connect
        self._keyspace, self._table, self._target = keyspace, table, target
        self._streams = f"{quoted(keyspace)}.{quoted(STREAMS)}"
        self._parts = f"{quoted(keyspace)}.{quoted(PARTS)}"

    def exists(self) -> bool:
        """Asked of the server until it says so: what the driver knows of its tables may be seconds old."""
        known = self._connect().known
        if self._streams not in known and self._asked():
            known.add(self._streams)
        return self._streams in known

    def _asked(self) -> bool:
        rows = self._execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name IN (?, ?)",
            *(self._keyspace, STREAMS, PARTS),
        )
        return len(list(rows)) == 2

    def create(self) -> None:
        """Make the tables; no error if another driver was first."""
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._streams} (target text, lineage text, adopts text, epoch bigint, "
            "stamp bigint, recent text, PRIMARY KEY (target, lineage))"
        )
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._parts} (target text, lineage text, epoch bigint, part text, "
            "PRIMARY KEY ((target, lineage), epoch, part))"
        )

    def standings(self) -> list[Standing]:
        """Every lineage that writes here. Serial: whatever was decided by a transaction is seen."""
        if not self.exists():
            return []
        rows = self._execute(
            f"SELECT lineage, adopts, epoch, stamp, recent FROM {self._streams} WHERE target = ?",
            self._table,
            serial=True,
        )
        return [
            Standing(
                lineage,
                adopts,
                NO_EPOCH if epoch is None else epoch,
                stamp or 0,
                {int(number): digest for number, digest in json.loads(recent or "{}").items()},
            )
            for lineage, adopts, epoch, stamp, recent in rows
        ]

    def standing(self, lineage: str) -> Standing | None:
        return next((s for s in self.standings() if s.lineage == lineage), None)

    def memory(self, lineage: str) -> Memory:
        """As the guard reads it."""
        found = self.standings()
        own = next((s for s in found if s.lineage == lineage), None)
        return Memory(
            self._target,
            enrolled=own is not None,
            last=own.epoch if own else NO_EPOCH,
            recent=own.recent if own else {},
            others={s.lineage: s.epoch for s in found if s.lineage != lineage},
            adopted_by=next((s.lineage for s in found if s.adopts == lineage), None),
        )

    def chain(self, lineage: str) -> list[str]:
        """The lineage, the one whose place it took, and so on."""
        adopts = {s.lineage: s.adopts for s in self.standings()}
        found = [lineage]
        while (before := adopts.get(found[-1])) is not None and before not in found:
            found.append(before)
        return found

    def enrol(self, lineage: str, adopts: str | None) -> None:
        self.create()
        self._execute(
            f"INSERT INTO {self._streams} (target, lineage, adopts, epoch, stamp, recent) VALUES (?, ?, ?, ?, ?, ?) "
            "IF NOT EXISTS",
            *(self._table, lineage, adopts, NO_EPOCH, 0, "{}"),
        )

    def finish(self, lineage: str, epoch: int, stamp: int, offsets: str) -> bool:
        """Note that an epoch is in; False if it was noted before."""
        before = self.standing(lineage)
        recent = {**(before.recent if before else {}), epoch: offsets}
        kept = dict(sorted(recent.items())[-RECENT:])
        rows = self._execute(
            f"UPDATE {self._streams} SET epoch = ?, stamp = ?, recent = ? WHERE target = ? AND lineage = ? "
            "IF epoch < ?",
            *(epoch, stamp, json.dumps(kept), self._table, lineage, epoch),
        )
        return bool(next(iter(rows))[0])

    def parts(self, lineage: str, epoch: int) -> set[str]:
        """What of an epoch is written."""
        rows = self._execute(
            f"SELECT part FROM {self._parts} WHERE target = ? AND lineage = ? AND epoch = ?",
            *(self._table, lineage, epoch),
        )
        return {part for (part,) in rows}

    def note_part(self, lineage: str, epoch: int, part: str) -> None:
        self._execute(
            f"INSERT INTO {self._parts} (target, lineage, epoch, part) VALUES (?, ?, ?, ?)",
            *(self._table, lineage, epoch, part),
        )

    def forget_parts(self, lineage: str, epoch: int) -> None:
        """Of this epoch and all before it."""
        self._execute(
            f"DELETE FROM {self._parts} WHERE target = ? AND lineage = ? AND epoch <= ?",
            *(self._table, lineage, epoch),
        )

    def _execute(self, text: str, *values: object, serial: bool = False) -> Iterable[Any]:
        from cassandra import ConsistencyLevel

        connection = self._connect()
        try:
            if not values:
                return list(connection.session.execute(text))
            statement = connection.prepared(text).bind(values)
            if serial:
                local = connection.endpoint.consistency.startswith("LOCAL")
                statement.consistency_level = ConsistencyLevel.LOCAL_SERIAL if local else ConsistencyLevel.SERIAL
            return list(connection.session.execute(statement))
        except Exception as fault:
            raise translated(fault, f"{self._keyspace}.{STREAMS}") from fault
