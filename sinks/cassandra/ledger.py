"""What the store remembers: three small tables of epochal's own, in the target's keyspace.

::

    epochal_claims  (target) (lineage)        which start of each stream has the table; its version counts the claims
    epochal_streams (target, lineage)         who writes to a table, up to which epoch, and the last timestamp taken
    epochal_parts   (target, lineage) (epoch, part)   what of the epoch under way is written

Being in the target's keyspace they are replicated as it is. An epoch is in when its number is in
`epochal_streams`; that is written by a lightweight transaction, so it only grows, whoever writes. So is the timestamp
of an epoch taken, before it is staged: whoever stages the next one, of whatever generation or lineage, reads it and
takes a later one. A row of the lineage ``#totals`` names, as `adopts`, the stream whose totals the table has.
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
from epochal.sinks.cassandra.standing import Register, Standing
from epochal.sinks.storage.register import Lineages, from_json, to_json
from epochal.txn.errors import Refused
from epochal.txn.model import NO_EPOCH, Claim, lineage_tag

OWNER = "#totals"  # no lineage is called so
RECENT = 50
AHEAD = 60 * 10**6

log = logging.getLogger("epochal")


def _recent(text: str | None) -> tuple[dict[int, str], dict[int, str]]:
    """The digests of recent epochs, and which attempts they are; older versions wrote the digests alone."""
    told = {int(number): value for number, value in json.loads(text or "{}").items()}
    digests = {number: value if isinstance(value, str) else str(value[0]) for number, value in told.items()}
    return digests, {number: str(value[1]) for number, value in told.items() if not isinstance(value, str)}


def micros(milliseconds: int) -> int:
    """A server's time as timestamps are counted."""
    return milliseconds * 1000


class Ledger:
    """The rows about one target."""

    def __init__(self, connect: Callable[[], ClusterSession], keyspace: str, table: str) -> None:
        self._connect = connect
        self._keyspace, self._table = keyspace, table
        self._streams = f"{quoted(keyspace)}.{quoted(STREAMS)}"
        self._parts = f"{quoted(keyspace)}.{quoted(PARTS)}"
        self._claims = f"{quoted(keyspace)}.{quoted(CLAIMS)}"

    def exists(self) -> bool:
        """Asked of the server until it says so: what the driver knows of its tables may be seconds old."""
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
        """Which start of each lineage has the table. Serial, as `read` is."""
        if not self._is_there(self._claims, CLAIMS):
            return Lineages()  # a ledger that an older version made
        rows = self._execute(
            f"SELECT version, lineage, claim FROM {self._claims} WHERE target = ?", self._table, serial=True
        )
        found, last = {}, 0
        for version, lineage, claim in rows:
            last = version
            if claim is not None:  # one that was taken back leaves its row
                found[lineage] = from_json(lineage, json.loads(claim))
        return Lineages(last, found)

    def claim(self, claim: Claim, *, version: int, adds: bool) -> bool:
        """Bind the table to one start; with `adds`, its totals too. False if it was claimed since `version`."""
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
        """Take back a claim, unless another start of its lineage has followed."""
        while (after := (before := self.claims()).without(claim)) is not before:
            if self._set_claim(claim.lineage, None, after.version):
                return

    def _set_claim(self, lineage: str, claim: str | None, version: int) -> bool:
        return self._changed(
            f"UPDATE {self._claims} SET version = ?, claim = ? WHERE target = ? AND lineage = ? IF version = ?",
            *(version, claim, self._table, lineage, version - 1 or None),
        )

    def read(self) -> Register:
        """Everybody who writes here. Serial: whatever was decided by a transaction is seen."""
        if not self.exists():
            return Register()
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
            found[lineage] = Standing(
                lineage, tuple(replaced), NO_EPOCH if epoch is None else epoch, stamp or 0, digests, makers
            )
        return Register(found, owner, now, claims)

    def enrol(self, lineage: str, *, adds: bool) -> None:
        """Remember that a lineage writes here; with `adds`, that the totals are its own.

        Whose place it takes is in its claim; `adopts` is where older versions have it.
        """
        self._execute(
            f"INSERT INTO {self._streams} (target, lineage, epoch, stamp, recent) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
            *(self._table, lineage, NO_EPOCH, 0, "{}"),
        )
        if adds:
            self._own(lineage)

    def _own(self, lineage: str) -> None:
        """Take the table's totals, from nobody or from a lineage whose place was taken; refused if others have them."""
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
        """The timestamp of an epoch that is being staged: later than any that was taken here before, by whomever."""
        while True:
            found = self.read()
            own = found.standings.get(lineage)
            if own is None:
                raise Refused(f"{self._keyspace}.{STREAMS}: stream {lineage_tag(lineage)} is not enrolled, or no more")
            stamp = found.next_stamp(least)
            if stamp - found.now > AHEAD:
                log.warning(
                    "timestamps run ahead of the server's clock and hide what other programs write before it is there",
                    extra={"table": f"{self._keyspace}.{self._table}", "seconds": (stamp - found.now) // 10**6},
                )
            if self._changed(
                f"UPDATE {self._streams} SET stamp = ? WHERE target = ? AND lineage = ? IF stamp = ?",
                *(stamp, self._table, lineage, own.stamp),
            ):
                return stamp

    def finish(self, lineage: str, epoch: int, stamp: int, offsets: str, maker: str) -> bool:
        """Note that an epoch is in, and which attempt it is; False if it was noted before."""
        while True:
            before = self.read().standings.get(lineage, Standing(lineage))
            if before.epoch >= epoch:
                return False
            recent = {number: [digest, before.makers.get(number, "")] for number, digest in before.recent.items()}
            kept = dict(sorted({**recent, epoch: [offsets, maker]}.items())[-RECENT:])
            # Later epochs may have taken theirs already: it never goes back.
            if self._changed(
                f"UPDATE {self._streams} SET epoch = ?, stamp = ?, recent = ? WHERE target = ? AND lineage = ? "
                "IF epoch = ? AND stamp = ?",
                *(epoch, max(before.stamp, stamp), json.dumps(kept), self._table, lineage, before.epoch, before.stamp),
            ):
                return True

    def _changed(self, text: str, *values: object) -> bool:
        """Whether a conditional update was applied; not if another process has changed the row."""
        return bool(next(iter(self._execute(text, *values)))[0])

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
