"""Writes a stream to a table of a SQLite database, each row exactly once.

Three tables beside the target, here `orders`, hold what the protocol needs::

    epochal_orders_claims   who writes here: the newest version counts
    epochal_orders_staged   rows of epochs that are not decided, as JSON
    epochal_orders_epochs   the ledger: which epochs the target holds, and from which attempt

One transaction moves an epoch's rows into the target and enters the epoch into the ledger. So a reader sees all rows of
an epoch or none, and a repeated commit finds its epoch there. Rows pass through the driver: for epochs of modest size.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from epochal.participant import (
    NO_EPOCH,
    Attempt,
    BadRows,
    Batch,
    Claim,
    DataLost,
    Handle,
    Json,
    Lineages,
    Memory,
    OnConnect,
    Option,
    Outcome,
    Refused,
    SinkName,
    SinkOptions,
    Staged,
    StoreAway,
    VisibleEpoch,
    check_predecessor,
    check_same_attempt,
    declared,
    failpoints,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HANDLE_VERSION = 1
TYPES = {"string", "byte", "short", "integer", "long", "float", "double", "boolean"}
BUSY = 30.0  # seconds to wait for another writer of the database
AWAY = {"BUSY", "LOCKED", "IOERR", "FULL", "CANTOPEN"}  # SQLite's errors that waiting may cure
failpoints.register("sqlite", {"insert": "an epoch's rows and its entry become visible"})


@declared
@dataclass(frozen=True, eq=False, repr=False)
class SqliteSink(SinkOptions):
    """Appends each epoch's rows to a table that exists."""

    kind: ClassVar[str] = "sqlite"

    path: Annotated[str, Option("the database file", journal=True)]
    _: KW_ONLY
    table: Annotated[str, Option("the table; it must exist", journal=True)]
    name: SinkName = "sqlite"

    @property
    def target(self) -> str:
        """The same for every spelling of the path."""
        return f"sqlite:{os.path.realpath(self.path)}#{self.table}"

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        # `recover` may run in another folder.
        return {**super().describe(rows), "path": os.path.abspath(self.path), "target": self.target}

    # Before the query starts.

    def check_frame(self, rows: DataFrame) -> Sequence[str]:
        with self._reading() as db:
            columns = {row[1]: row for row in db.execute(f"PRAGMA table_info({_quoted(self.table)})")}
            unique = [row[1] for row in db.execute(f"PRAGMA index_list({_quoted(self.table)})") if row[2]]
        if not columns:
            raise Refused(f"sink {self.name!r}: there is no table {self.table!r} in {self.path}. Create it")
        unique += [f"PRIMARY KEY {name}" for name, row in columns.items() if row[5]]
        faults = [f"{name}: the frame has it twice" for name in {n for n in rows.columns if rows.columns.count(n) > 1}]
        kinds = {field.name: field.dataType.typeName() for field in rows.schema.fields}
        faults += [f"{name}: the table has no such column" for name in kinds if name not in columns]
        faults += [f"{name}: the frame lacks this column of the table" for name in columns if name not in kinds]
        faults += [f"{name}: cast {kind} to string" for name, kind in kinds.items() if kind not in TYPES]
        # Two epochs could collide, and that would be seen only when the second is committed.
        faults += [f"{name}: drop this constraint; the sink appends" for name in unique]
        return faults

    def check_output_mode(self, mode: str) -> None:
        if mode != "append":
            raise Refused(f"sink {self.name!r} appends, and {mode} would give rows again. Nothing was written")

    # Who writes here.

    def open(self, lineage: str) -> Memory:
        with self._reading() as db:
            lineages = self._lineages(db)
            epochs = self._select(db, "epochs", "lineage, epoch, offsets")
        last = dict.fromkeys(lineages.claims, NO_EPOCH)
        for writer, epoch, _ in epochs:
            last[writer] = max(last.get(writer, NO_EPOCH), epoch)
        return Memory(
            self.target,
            enrolled=lineage in lineages.claims,
            last=last.pop(lineage, NO_EPOCH),
            recent={epoch: offsets for writer, epoch, offsets in epochs if writer == lineage},
            others=last,
            adopted_by=lineages.adopted_by(lineage),
            holder=lineages.claims.get(lineage),
            version=lineages.version,
        )

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:  # noqa: ARG002  # the table has its columns
        with self._transaction() as db:
            for table, columns in (
                ("claims", "version INTEGER PRIMARY KEY, claims TEXT"),
                ("staged", "lineage TEXT, attempt TEXT, row TEXT"),
                ("epochs", "lineage TEXT, epoch INT, generation INT, start TEXT, offsets TEXT, UNIQUE(lineage, epoch)"),
            ):
                db.execute(f"CREATE TABLE IF NOT EXISTS {self._own(table)} ({columns})")
            lineages = self._lineages(db)
            if lineages.version != version:
                return False  # somebody else has claimed the table since
            self._write(db, lineages.with_claim(claim))
            return True

    def withdraw(self, claim: Claim) -> None:
        with self._transaction() as db:
            self._write(db, self._lineages(db).without(claim))

    def holder(self, lineage: str) -> Claim | None:
        with self._reading() as db:
            return self._lineages(db).holder(lineage)

    # Each epoch.

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        attempt, rows = batch.attempt, [row.asDict() for row in batch.rows.collect()]
        try:
            texts = [json.dumps(row, allow_nan=False) for row in rows]
            with self._transaction() as db:
                self._discard(db, attempt)  # the call may be repeated
                staged = [(attempt.lineage, attempt.key, text) for text in texts]
                db.executemany(f"INSERT INTO {self._own('staged')} VALUES (?, ?, ?)", staged)
                db.execute("SAVEPOINT rehearsal")  # NOT NULL and CHECK must fail now, not once the epoch is decided
                self._insert(db, rows)
                db.execute("ROLLBACK TO rehearsal")
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorname.split("_")[1] not in AWAY:
                raise
            raise StoreAway(f"{self.target}: {fault}") from fault
        except (sqlite3.IntegrityError, ValueError) as fault:
            raise BadRows(f"sink {self.name!r}, epoch {attempt.epoch}: {fault}. Nothing was written") from fault
        return Staged(Handle(HANDLE_VERSION, {"rows": len(rows), "offsets": batch.offsets}), len(rows))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        body = handle.checked_body(HANDLE_VERSION)
        with self._transaction() as db:
            if (shown := self._shown(db, attempt.lineage, attempt.epoch)) is not None:
                check_same_attempt(self.name, self.target, attempt, str(body["offsets"]), shown)
                self._discard(db, attempt)
                return Outcome.ALREADY_COMMITTED
            check_predecessor(
                self.name, self.target, attempt, lambda epoch: self._shown(db, attempt.lineage, epoch) is not None
            )
            found = self._select(db, "staged", "row", lineage=attempt.lineage, attempt=attempt.key)
            if len(found) != body["rows"]:
                raise DataLost(f"{self.target}, epoch {attempt.epoch}: {len(found)} of {body['rows']} rows are staged")
            self._insert(db, [json.loads(text) for (text,) in found])
            entry = (attempt.lineage, attempt.epoch, attempt.generation, attempt.start, str(body["offsets"]))
            db.execute(f"INSERT INTO {self._own('epochs')} VALUES (?, ?, ?, ?, ?)", entry)
            self._discard(db, attempt)
            failpoints.hit("before-insert")
        failpoints.hit("after-insert")
        return Outcome.COMMITTED

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the attempt names the rows
        with self._transaction() as db:
            self._discard(db, attempt)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:  # noqa: ARG002  # it stages in the database
        with self._reading() as db:
            keys = self._select(db, "staged", "DISTINCT attempt", lineage=lineage)
        return [attempt for (key,) in keys if (attempt := Attempt.from_key(lineage, key)) is not None]

    # What it can do beyond that. It holds no rows open, and cannot show what its table held earlier.

    @property
    def connect(self) -> OnConnect:
        return self

    def connect_faults(self) -> list[str]:
        return [] if os.path.isabs(self.path) else [f"path={self.path!r}: must be absolute, for the server's process"]

    # The database.

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        if not os.path.exists(self.path):
            raise Refused(f"sink {self.name!r}: there is no database {self.path}. Create it, with its table")
        uri = f"{Path(self.path).absolute().as_uri()}?mode=rw"  # never creates it
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None)) as db:
            db.execute(f"BEGIN {kind}")
            yield db
            db.execute("COMMIT")  # closed without it, the transaction is rolled back

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("DEFERRED")

    def _own(self, table: str) -> str:
        return _quoted(f"epochal_{self.table}_{table}")

    def _select(self, db: sqlite3.Connection, table: str, what: str, **where: str | int) -> list[Any]:
        """Rows of one of our tables; none before the first claim, which creates it."""
        if not db.execute(f"PRAGMA table_info({self._own(table)})").fetchall():
            return []
        condition = " AND ".join(["1", *(f"{column} = :{column}" for column in where)])
        return db.execute(f"SELECT {what} FROM {self._own(table)} WHERE {condition}", where).fetchall()

    def _lineages(self, db: sqlite3.Connection) -> Lineages:
        for version, text in self._select(db, "claims", "version, claims"):
            claims = [Claim(**{**claim, "replaces": tuple(claim["replaces"])}) for claim in json.loads(text)]
            return Lineages(version, {claim.lineage: claim for claim in claims})
        return Lineages()

    def _write(self, db: sqlite3.Connection, after: Lineages) -> None:
        text = json.dumps([asdict(claim) for claim in after.claims.values()])
        db.execute(f"DELETE FROM {self._own('claims')}")
        db.execute(f"INSERT INTO {self._own('claims')} VALUES (?, ?)", (after.version, text))

    def _shown(self, db: sqlite3.Connection, lineage: str, epoch: int) -> VisibleEpoch | None:
        found = self._select(db, "epochs", "generation, start, offsets", lineage=lineage, epoch=epoch)
        return VisibleEpoch(*found[0]) if found else None

    def _insert(self, db: sqlite3.Connection, rows: list[dict[str, Any]]) -> None:
        if rows:
            columns, marks = ", ".join(map(_quoted, rows[0])), ", ".join("?" * len(rows[0]))
            into = f"INSERT INTO {_quoted(self.table)} ({columns}) VALUES ({marks})"
            db.executemany(into, [[*row.values()] for row in rows])

    def _discard(self, db: sqlite3.Connection, attempt: Attempt) -> None:
        mine = (attempt.lineage, attempt.key)
        db.execute(f"DELETE FROM {self._own('staged')} WHERE lineage = ? AND attempt = ?", mine)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
