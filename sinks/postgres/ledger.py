"""The bookkeeping of one table: who writes to it, which epochs it shows, which attempts have staged rows.

Each function is a step of a transaction that its caller holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import errors

from epochal.participant import NO_EPOCH, Attempt, Claim, Lineages, Memory, Refused, RowDigest, VisibleEpoch
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import KEPT, own, quoted, staged_table, tables
from epochal.sinks.postgres.table import Table

Database = psycopg.Connection[Any]
MAKING = 0x65706F6368616C  # the advisory lock of whoever makes the tables
RECENT = 100  # epochs whose offsets are remembered
NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The records of one target in epochal's schema."""

    schema: str
    target: str  # the table's full name, quoted

    def exists(self, db: Database) -> bool:
        """Whether anybody has ever claimed a table here."""
        return db.execute("SELECT to_regclass(%s)", (own(self.schema, "claims"),)).fetchone() != (None,)

    def make(self, db: Database) -> None:
        """Make epochal's tables where they are not, and check what this user may do there."""
        if not self.exists(db):
            db.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
            self._make(db)
        pairs = "unnest(%s::text[]) t, unnest(%s::text[]) p"
        query = f"SELECT p || ' on ' || t FROM {pairs} WHERE NOT has_table_privilege(t, p)"
        names = [own(self.schema, name) for name in ("claims", "epochs", "staged")]
        lacking = [row[0] for row in db.execute(query, (names, [*NEEDED]))]
        query = "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s"
        if db.execute(query, (self.schema,)).fetchone() != (True,):
            lacking.append(f"CREATE on the schema {quoted(self.schema)}, for staged tables")
        if lacking:
            raise Refused(f"the user lacks {', '.join(lacking)}. Nothing was written. GRANT them")

    def _make(self, db: Database) -> None:
        # Whoever had the lock may have made them. Only who reads a catalog itself is sure to hear of that.
        schemas = db.execute("SELECT FROM pg_namespace WHERE nspname = %s", (self.schema,)).rowcount
        if self.exists(db):
            return
        try:
            if not schemas:
                db.execute(f"CREATE SCHEMA {quoted(self.schema)}")
            db.execute(tables(self.schema).encode())
        except errors.InsufficientPrivilege:
            raise Refused(self._how_to_make()) from None

    def lineages(self, db: Database, *, lock: bool = False) -> Lineages:
        """Who writes to the table. With `lock`, nobody else claims it or shows an epoch before the transaction ends."""
        query = f"SELECT version, claims FROM {own(self.schema, 'claims')} WHERE target = %s"
        found = db.execute(query + (" FOR UPDATE" if lock else ""), (self.target,)).fetchone()
        if found is None:
            return Lineages()
        claims = [Claim(**{**claim, "replaces": tuple(claim["replaces"])}) for claim in found[1]]
        return Lineages(found[0], {claim.lineage: claim for claim in claims})

    def write(self, db: Database, after: Lineages, *, adds: bool) -> None:
        """The claims as they are from now on; that somebody adds to totals is never forgotten."""
        text = json.dumps([asdict(claim) for claim in after.claims.values()])
        query = (
            f"UPDATE {own(self.schema, 'claims')} SET version = %s, claims = %s, adds = adds OR %s WHERE target = %s"
        )
        db.execute(query, (after.version, text, adds, self.target))

    def enter(self, db: Database) -> None:
        """Have a row for the target, which claims can lock."""
        query = f"INSERT INTO {own(self.schema, 'claims')} VALUES (%s, 0, '[]', false) ON CONFLICT DO NOTHING"
        db.execute(query, (self.target,))

    def memory(self, db: Database, lineage: str, table: Table, target: str, *, adds: bool) -> Memory:
        """What the guard needs to know. Epochs of a table of this name that was dropped do not count."""
        if not self.exists(db):
            return Memory(target, identity=table.identity, exclusive=adds)
        lineages = self.lineages(db)
        where = f"FROM {own(self.schema, 'epochs')} WHERE target = %s AND relation = %s::oid"
        last = dict.fromkeys(lineages.claims, NO_EPOCH)
        last.update(db.execute(f"SELECT lineage, max(epoch) {where} GROUP BY lineage", (self.target, table.oid)))
        # Of a table that was renamed the epochs are under the name that it had.
        renamed = f"SELECT lineage, max(epoch) FROM {own(self.schema, 'epochs')} WHERE target <> %s AND lineage <> %s "
        found = db.execute(renamed + "AND relation = %s::oid GROUP BY lineage", (self.target, lineage, table.oid))
        last.update({other: max(epoch, last.get(other, NO_EPOCH)) for other, epoch in found})
        recent = f"SELECT epoch, offsets {where} AND lineage = %s ORDER BY epoch DESC LIMIT {RECENT}"
        added = f"SELECT adds FROM {own(self.schema, 'claims')} WHERE target = %s"
        return Memory(
            target,
            enrolled=lineage in lineages.claims,
            last=last.pop(lineage, NO_EPOCH),
            recent=dict(db.execute(recent, (self.target, table.oid, lineage))),
            others=last,
            adopted_by=lineages.adopted_by(lineage),
            holder=lineages.claims.get(lineage),
            version=lineages.version,
            identity=table.identity,
            exclusive=adds or db.execute(added, (self.target,)).fetchone() == (True,),
        )

    # Epochs.

    def shown(self, db: Database, lineage: str, epoch: int) -> VisibleEpoch | None:
        """The attempt that an epoch came from; None if the table does not show it."""
        query = f"SELECT generation, start, offsets FROM {own(self.schema, 'epochs')} WHERE {_ROW} AND epoch = %s"
        found = db.execute(query, (self.target, lineage, epoch)).fetchone()
        return None if found is None else VisibleEpoch(*found)

    def holds(self, db: Database, lineage: str, epoch: int, oid: int) -> bool:
        """Whether the table as it is now has an epoch."""
        query = f"SELECT FROM {own(self.schema, 'epochs')} WHERE {_ROW} AND epoch = %s AND relation = %s::oid"
        return db.execute(query, (self.target, lineage, epoch, oid)).fetchone() is not None

    def record(self, db: Database, attempt: Attempt, epoch: StagedEpoch, oid: int) -> None:
        """Enter an epoch; those that are long past are removed."""
        epochs = own(self.schema, "epochs")
        columns = "target, lineage, epoch, relation, generation, start, offsets, rows, digest, columns"
        db.execute(
            f"INSERT INTO {epochs} ({columns}) VALUES (%s, %s, %s, %s::oid, %s, %s, %s, %s, %s, %s)",
            (
                *(self.target, attempt.lineage, attempt.epoch, oid, attempt.generation, attempt.start),
                *(epoch.offsets, epoch.rows, epoch.digest, json.dumps(epoch.names)),
            ),
        )
        past = f"DELETE FROM {epochs} WHERE {_ROW} AND epoch < %s"
        db.execute(past, (self.target, attempt.lineage, attempt.epoch - KEPT))

    def recorded(self, db: Database, lineage: str, oid: int) -> dict[int, tuple[RowDigest, tuple[str, ...]]]:
        """The rows of each epoch of a lineage, and the columns that were written."""
        if not self.exists(db):
            return {}
        query = (
            f"SELECT epoch, rows, digest, columns FROM {own(self.schema, 'epochs')} WHERE {_ROW} AND relation = %s::oid"
        )
        found = db.execute(query, (self.target, lineage, oid))
        return {epoch: (RowDigest(rows, digest), tuple(columns)) for epoch, rows, digest, columns in found}

    def has_others(self, db: Database, lineage: str, oid: int) -> bool:
        """Whether other lineages have shown epochs in the table."""
        where = "target = %s AND lineage <> %s AND relation = %s::oid"
        query = f"SELECT FROM {own(self.schema, 'epochs')} WHERE {where} LIMIT 1"
        return self.exists(db) and db.execute(query, (self.target, lineage, oid)).fetchone() is not None

    # Staged attempts.

    def relation(self, attempt: Attempt) -> str:
        """The staged table of an attempt."""
        return staged_table(self.target, attempt.lineage, attempt.key)

    def row(self, attempt: Attempt) -> tuple[str, str, str]:
        """The key of an attempt in `staged`."""
        return self.target, attempt.lineage, attempt.key

    def begin(self, db: Database, attempt: Attempt) -> None:
        """Record an attempt before its rows are staged; what it staged before is removed."""
        self.discard(db, attempt)
        db.execute(f"INSERT INTO {own(self.schema, 'staged')} VALUES (%s, %s, %s, NULL)", self.row(attempt))

    def file(self, db: Database, attempt: Attempt, data: bytes) -> None:
        """Store the rows of a small attempt."""
        query = f"UPDATE {own(self.schema, 'staged')} SET data = %s WHERE {_ROW} AND attempt = %s"
        if db.execute(query, (data, *self.row(attempt))).rowcount != 1:
            raise LookupError(attempt.key)

    def filed(self, db: Database, attempt: Attempt) -> bytes | None:
        """The rows of a small attempt; None if they are not there."""
        query = f"SELECT data FROM {own(self.schema, 'staged')} WHERE {_ROW} AND attempt = %s"
        found = db.execute(query, self.row(attempt)).fetchone()
        return None if found is None or found[0] is None else bytes(found[0])

    def discard(self, db: Database, attempt: Attempt) -> None:
        """Remove what an attempt has staged. Its row goes first: a task that is late then makes no table any more."""
        db.execute(f"DELETE FROM {own(self.schema, 'staged')} WHERE {_ROW} AND attempt = %s", self.row(attempt))
        db.execute(f"DROP TABLE IF EXISTS {own(self.schema, self.relation(attempt))}")

    def attempts(self, db: Database, lineage: str) -> Sequence[str]:
        """The keys of a lineage's attempts that have staged rows."""
        if not self.exists(db):
            return []
        query = f"SELECT attempt FROM {own(self.schema, 'staged')} WHERE {_ROW}"
        return [key for (key,) in db.execute(query, (self.target, lineage))]

    def _how_to_make(self) -> str:
        return (
            f"this user may not make epochal's own tables in the schema {quoted(self.schema)}. Nothing was written. "
            f"Let somebody who may create it, and grant this user CREATE and USAGE on it and {', '.join(NEEDED)} on "
            f"its tables:\nCREATE SCHEMA {quoted(self.schema)};\n{tables(self.schema)}"
        )


_ROW = "target = %s AND lineage = %s"
