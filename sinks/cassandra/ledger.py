"""The ledger: three small tables of epochal's own, in the target's keyspace.

::

    epochal_claims  (target) (lineage)        which start of each stream holds the table; its version counts the claims
    epochal_streams (target, lineage)         which streams write to a table, their last epoch and last timestamp
    epochal_parts   (target, lineage) (epoch, part)   which parts of the current epoch are written

They are replicated as the target is, since they are in its keyspace. An epoch is committed when its number is in
`epochal_streams`. A lightweight transaction writes it, so it only grows, whichever process writes. The timestamp of an
epoch is taken in the same way, before the epoch is staged: the next epoch, of any generation or lineage, reads it and
takes a later one. The row of the lineage ``#totals`` names, as `adopts`, the stream that owns the table's totals.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.cql import quoted
from epochal.sinks.cassandra.cluster.faults import translated
from epochal.sinks.cassandra.layout import CLAIMS, PARTS, STREAMS
from epochal.sinks.cassandra.ledger_state import LedgerState, StreamState
from epochal.sinks.storage.register import Lineages, from_json, to_json
from epochal.txn.errors import Refused
from epochal.txn.model import NO_EPOCH, Claim, lineage_tag

OWNER = "#totals"  # no lineage has this name
RECENT = 50  # epochs whose digests are recorded
AHEAD = 60 * 10**6  # microseconds; timestamps further ahead of the server's clock are warned of

log = logging.getLogger("epochal")


def _recent(text: str | None) -> tuple[dict[int, str], dict[int, str]]:
    """The digests of recent epochs, and the attempts that wrote them; older versions wrote the digests alone."""
    recorded = {int(number): value for number, value in json.loads(text or "{}").items()}
    digests = {number: value if isinstance(value, str) else str(value[0]) for number, value in recorded.items()}
    return digests, {number: str(value[1]) for number, value in recorded.items() if not isinstance(value, str)}


def micros(milliseconds: int) -> int:
    """A server's time in the unit of write timestamps."""
    return milliseconds * 1000


class Ledger:
    """The ledger's rows for one table."""

    def __init__(self, connect: Callable[[], ClusterSession], keyspace: str, table: str) -> None:
        self._connect = connect
        self._keyspace, self._table = keyspace, table
        self._streams = f"{quoted(keyspace)}.{quoted(STREAMS)}"
        self._parts = f"{quoted(keyspace)}.{quoted(PARTS)}"
        self._claims = f"{quoted(keyspace)}.{quoted(CLAIMS)}"

    def exists(self) -> bool:
        """Whether the tables exist. Asks the server: what the driver knows may be seconds old."""
        return self._is_there(self._streams, STREAMS) and self._is_there(self._parts, PARTS)

    def _is_there(self, table: str, name: str) -> bool:
        known = self._connect().known
        if table not in known and self._execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
            *(self._keyspace, name),
        ):
            known.add(table)
        return table in known

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
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._claims} (target text, version bigint static, lineage text, claim text, "
            "PRIMARY KEY (target, lineage))"
        )

    def claims(self) -> Lineages:
        """Which start of each lineage holds the table. A serial read, as `read` is."""
        if not self._is_there(self._claims, CLAIMS):
            return Lineages()  # a ledger that an older version made
        rows = self._execute(
            f"SELECT version, lineage, claim FROM {self._claims} WHERE target = ?", self._table, serial=True
        )
        found, last = {}, 0
        for version, lineage, claim in rows:
            last = version
            if claim is not None:  # a withdrawn claim leaves its row
                found[lineage] = from_json(lineage, json.loads(claim))
        return Lineages(last, found)

    def claim(self, claim: Claim, *, version: int, adds: bool) -> bool:
        """Claim the table for one start, and its totals if it `adds`. False if it was claimed since `version`."""
        self.create()
        before = self.claims()
        if before.version != version:
            return False
        after = before.with_claim(claim)
        claimed = self._set_claim(claim.lineage, json.dumps(to_json(after.claims[claim.lineage])), after.version)
        if claimed:
            try:
                self.enrol(claim.lineage, adds=adds)
            except Refused:
                self.withdraw(claim)
                raise
        return claimed

    def withdraw(self, claim: Claim) -> None:
        """Withdraw a claim, unless another start of its lineage has claimed the table since."""
        while (after := (before := self.claims()).without(claim)) is not before:
            if self._set_claim(claim.lineage, None, after.version):
                return

    def _set_claim(self, lineage: str, claim: str | None, version: int) -> bool:
        return self._changed(
            f"UPDATE {self._claims} SET version = ?, claim = ? WHERE target = ? AND lineage = ? IF version = ?",
            *(version, claim, self._table, lineage, version - 1 or None),
        )

    def read(self) -> LedgerState:
        """All streams that write here. A serial read sees every transaction that was decided."""
        if not self.exists():
            return LedgerState()
        rows = self._execute(
            f"SELECT lineage, adopts, epoch, stamp, recent, toUnixTimestamp(now()) FROM {self._streams} "
            "WHERE target = ?",
            self._table,
            serial=True,
        )
        claims = self.claims()
        found, owner, now = {}, None, 0
        for lineage, adopts, epoch, stamp, recent, at in rows:
            now = micros(at)
            if lineage == OWNER:
                owner = adopts
                continue
            digests, makers = _recent(recent)
            claim = claims.claims.get(lineage)
            replaced = dict.fromkeys([*((adopts,) if adopts else ()), *(claim.replaces if claim else ())])
            found[lineage] = StreamState(
                lineage, tuple(replaced), NO_EPOCH if epoch is None else epoch, stamp or 0, digests, makers
            )
        return LedgerState(found, owner, now, claims)

    def enrol(self, lineage: str, *, adds: bool) -> None:
        """Record that a lineage writes here, and that it owns the totals if it `adds`.

        Its claim names the lineages whose place it takes; older versions have that in `adopts`.
        """
        self._execute(
            f"INSERT INTO {self._streams} (target, lineage, epoch, stamp, recent) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
            *(self._table, lineage, NO_EPOCH, 0, "{}"),
        )
        if adds:
            self._own(lineage)

    def _own(self, lineage: str) -> None:
        """Record the lineage as owner of the table's totals. Refused if another stream owns them.

        A lineage may take them over from one whose place it took.
        """
        while True:
            found = self.read()
            if found.owner == lineage:
                return
            if found.owner is None:
                self._execute(
                    f"INSERT INTO {self._streams} (target, lineage, adopts) VALUES (?, ?, ?) IF NOT EXISTS",
                    *(self._table, OWNER, lineage),
                )
            elif found.owner in found.chain(lineage):
                self._execute(
                    f"UPDATE {self._streams} SET adopts = ? WHERE target = ? AND lineage = ? IF adopts = ?",
                    *(lineage, self._table, OWNER, found.owner),
                )
            else:
                raise Refused(
                    f"{self._keyspace}.{self._table} has the totals of another stream, {lineage_tag(found.owner)}, and "
                    "two cannot add to the same ones. Nothing was written. Give each stream a table of its own"
                )

    def take_stamp(self, lineage: str, least: int) -> int:
        """Take the timestamp of an epoch that is being staged: later than any that was taken here before."""
        while True:
            found = self.read()
            own = found.streams.get(lineage)
            if own is None:
                raise Refused(
                    f"{self._keyspace}.{STREAMS}: stream {lineage_tag(lineage)} is not recorded there, or was removed "
                    "since. Nothing was written. Start the query again"
                )
            stamp = found.next_stamp(least)
            if stamp - found.now > AHEAD:
                log.warning(
                    "timestamps ran ahead of the server's clock; until it catches up they hide other programs' writes",
                    extra={"table": f"{self._keyspace}.{self._table}", "seconds": (stamp - found.now) // 10**6},
                )
            if self._changed(
                f"UPDATE {self._streams} SET stamp = ? WHERE target = ? AND lineage = ? IF stamp = ?",
                *(stamp, self._table, lineage, own.stamp),
            ):
                return stamp

    def finish(self, lineage: str, epoch: int, stamp: int, offsets: str, maker: str) -> bool:
        """Record an epoch as committed, and the attempt that wrote it; False if it is recorded already."""
        while True:
            before = self.read().streams.get(lineage, StreamState(lineage))
            if before.epoch >= epoch:
                return False
            recent = {number: [digest, before.makers.get(number, "")] for number, digest in before.recent.items()}
            last = json.dumps(dict(sorted({**recent, epoch: [offsets, maker]}.items())[-RECENT:]))
            # A later epoch may have taken its timestamp already: the recorded one never goes back.
            if self._changed(
                f"UPDATE {self._streams} SET epoch = ?, stamp = ?, recent = ? WHERE target = ? AND lineage = ? "
                "IF epoch = ? AND stamp = ?",
                *(
                    epoch,
                    max(before.stamp, stamp),
                    last,
                    self._table,
                    lineage,
                    before.epoch,
                    before.stamp,
                ),
            ):
                return True

    def _changed(self, text: str, *values: object) -> bool:
        """Whether a conditional update was applied. It is not if another process has changed the row."""
        return bool(next(iter(self._execute(text, *values)))[0])

    def parts(self, lineage: str, epoch: int) -> set[str]:
        """The parts of an epoch that are written."""
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
        """Remove the records of an epoch's parts, and those of all epochs before it."""
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
