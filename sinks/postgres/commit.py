"""Phase two: one transaction makes an epoch's rows visible, records the epoch and removes what was staged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors

from epochal.participant import (
    Attempt,
    DataLost,
    FencedOut,
    Outcome,
    Refused,
    check_predecessor,
    check_same_attempt,
    failpoints,
)
from epochal.sinks.postgres import pieces
from epochal.sinks.postgres import table as tables
from epochal.sinks.postgres.connection import Endpoint, transaction, waiting
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import DELETED, of_parts, own, quoted
from epochal.sinks.postgres.ledger import Ledger
from epochal.sinks.postgres.table import Table

Database = psycopg.Connection[Any]
log = logging.getLogger("epochal")


@dataclass(frozen=True, slots=True)
class Committer:
    """Shows epochs in one table."""

    name: str
    target: str  # for messages
    endpoint: Endpoint
    ledger: Ledger
    table: tuple[str, str]

    def commit(self, attempt: Attempt, epoch: StagedEpoch) -> Outcome:
        """Show an epoch, unless it is there."""
        with waiting(self.name, self.endpoint), transaction(self.endpoint, "commits") as db:
            outcome = self._commit(db, attempt, epoch)
            failpoints.hit("before-shown")
        failpoints.hit("after-shown")
        return outcome

    def _commit(self, db: Database, attempt: Attempt, epoch: StagedEpoch) -> Outcome:
        if not self.ledger.exists(db):
            raise Refused(
                f"sink {self.name!r}: epochal's own tables in {quoted(self.ledger.schema)} are gone. Restore them"
            )
        lineages = self.ledger.lineages(db, lock=True)
        if (shown := self.ledger.shown(db, attempt.lineage, attempt.epoch)) is not None:
            check_same_attempt(self.name, self.target, attempt, epoch.offsets, shown)
            self._discard(db, attempt)
            return Outcome.ALREADY_COMMITTED
        if (taker := lineages.adopted_by(attempt.lineage)) is not None:
            raise FencedOut(f"sink {self.name!r}: the stream {taker} has taken the place of this one in {self.target}")
        # From here on nobody changes the table's columns.
        db.execute(f"LOCK TABLE {self.ledger.target} IN ROW EXCLUSIVE MODE")
        table = tables.read(db, *self.table)

        def holds(number: int) -> bool:
            return self.ledger.holds(db, attempt.lineage, number, table.oid)

        check_predecessor(self.name, self.target, attempt, holds)
        check_columns(self.name, table, epoch)
        staged = self._staged(db, attempt, epoch)
        written, wanted = show(db, table, epoch, staged)
        if wanted is not None and written != wanted:
            if isinstance(staged, str) and not epoch.size:
                self._check_staged(attempt, epoch, count(db, staged, epoch.parts))
            elif not table.has_triggers:
                self._check_staged(attempt, epoch, written)
            raise Refused(
                f"sink {self.name!r}: a trigger of {table.sql} drops rows of epoch {attempt.epoch}, and did not when "
                f"it was staged: {written} of {wanted} would be written. Nothing of it was written. The epoch is "
                "decided: remove the trigger until it is in the table, and start the query again"
            )
        self.ledger.record(db, attempt, epoch, table.oid)
        self._discard(db, attempt)
        return Outcome.COMMITTED

    def _discard(self, db: Database, attempt: Attempt) -> None:
        """Remove what was staged, but do not wait long for a task that is late and still writes there.

        What stays is a leftover, which the next start removes.
        """
        try:
            with db.transaction():
                db.execute("SET LOCAL lock_timeout = '1s'")
                self.ledger.discard(db, attempt)
        except errors.LockNotAvailable:
            log.info("staged rows are still being written to, by a task that is late", extra={"epoch": attempt.epoch})

    def _staged(self, db: Database, attempt: Attempt, epoch: StagedEpoch) -> bytes | str:
        """The staged rows: their text, or the table that has them. DataLost if they are not there."""
        if epoch.filed:
            data = self.ledger.filed(db, attempt)
            self._check_staged(attempt, epoch, data.count(b"\n") if data is not None else None)
            return data or b""
        relation = own(self.ledger.schema, self.ledger.relation(attempt))
        if db.execute("SELECT to_regclass(%s)", (relation,)).fetchone() == (None,):
            self._check_staged(attempt, epoch, None)
        elif epoch.size:
            # Before they are copied: lines that were cut short could fit the table all the same.
            self._check_staged(attempt, epoch, pieces.size(db, relation, epoch.parts), "bytes of rows")
        elif epoch.mode != "append":  # else their number is known when they are written
            self._check_staged(attempt, epoch, count(db, relation, epoch.parts))
        return relation

    def _check_staged(self, attempt: Attempt, epoch: StagedEpoch, found: int | None, unit: str = "rows") -> None:
        """DataLost unless all staged rows were found."""
        wanted = epoch.rows if unit == "rows" else epoch.size
        if found == wanted:
            return
        raise DataLost(
            f"sink {self.name!r}: of the {wanted} {unit} that were staged of epoch {attempt.epoch}, {found or 0} are "
            f"in the schema {quoted(self.ledger.schema)}: another program has removed or changed them, or the server "
            "was restored from an older copy. The epoch is decided and cannot be written without them"
        )


def check_columns(sink: str, table: Table, epoch: StagedEpoch) -> None:
    """Refused if columns have other types than when the epoch was staged: values could change on their way."""
    now = {name: column.spelled for name, column in table.columns.items()}
    changed = [
        f"{name} was {kind} and is {now.get(name, 'gone')}" for name, kind in epoch.columns if now.get(name) != kind
    ]
    if changed:
        raise Refused(
            f"sink {sink!r}: the table {table.sql} was changed after the epoch was staged: {', '.join(changed)}. "
            "Nothing was written. Change it back until this epoch is in it"
        )


def count(db: Database, relation: str, parts: Sequence[int]) -> int:
    """How many rows the parts of a staged table have."""
    found = db.execute(f"SELECT count(*) FROM {relation} WHERE {of_parts(parts)}").fetchone()
    assert found is not None
    return int(found[0])


def text_of(db: Database, epoch: StagedEpoch, staged: bytes | str) -> Iterator[bytes]:
    """The lines of an epoch whose rows are stored as text, in blocks."""
    if isinstance(staged, str):
        return pieces.lines(db, staged, epoch.parts)
    return iter([staged] if staged else [])


def show(db: Database, table: Table, epoch: StagedEpoch, staged: bytes | str) -> tuple[int, int | None]:
    """Write staged rows into the table, as the epoch's mode says: how many were written, and how many should be.

    The latter is None if nobody knows. A trigger may drop rows.
    """
    columns = ", ".join(map(quoted, epoch.names))
    if isinstance(staged, bytes) or epoch.size:
        return pieces.copy(db, text_of(db, epoch, staged), f"{table.sql} ({columns})"), epoch.rows
    match epoch.mode:
        case "append":
            rows = f"SELECT {', '.join(_data(epoch))} FROM {staged} WHERE {of_parts(epoch.parts)}"
            return db.execute(f"INSERT INTO {table.sql} ({columns}) {rows}").rowcount, epoch.rows
        case "upsert":
            wanted = _wanted(db, table, epoch, newest(epoch, staged))
            return db.execute(_upsert(table, epoch, staged)).rowcount, wanted
        case "accumulate":
            wanted = _wanted(db, table, epoch, added(epoch, staged))
            return db.execute(_accumulate(table, epoch, staged)).rowcount, wanted
        case _:
            raise Refused(f"staged with an unknown mode, {epoch.mode!r}; finish it with the version that staged it")


def show_one(db: Database, table: Table, epoch: StagedEpoch, staged: bytes | str) -> None:
    """Write one of the rows to append: whatever does not depend on their values is seen by that."""
    into = f"{table.sql} ({', '.join(map(quoted, epoch.names))})"
    if isinstance(staged, str) and not epoch.size:
        data = ", ".join(_data(epoch))
        db.execute(f"INSERT INTO {into} SELECT {data} FROM {staged} WHERE {of_parts(epoch.parts)} LIMIT 1")
        return
    first = next(text_of(db, epoch, staged))
    pieces.copy(db, iter([first[: first.index(b"\n") + 1]]), into)


def _wanted(db: Database, table: Table, epoch: StagedEpoch, rows: str) -> int | None:
    """How many rows a query gives that the table must take; None if nobody knows, or no trigger may drop any."""
    only_keys = {*epoch.names} == {*epoch.keys}  # of keys that are there nothing is written
    if not table.has_triggers or only_keys:
        return None
    kept = f" WHERE NOT {DELETED}" if epoch.deletes else ""
    found = db.execute(f"SELECT count(*) FROM ({rows}) n{kept}").fetchone()
    assert found is not None
    return int(found[0])


def newest(epoch: StagedEpoch, staged: str) -> str:
    """A query for the last row of each key."""
    keys = key_columns(epoch)
    order = [*keys, *(f"o{n} DESC NULLS LAST" for n in range(epoch.order))]
    rows = f"FROM {staged} WHERE {of_parts(epoch.parts)}"
    return f"SELECT DISTINCT ON ({', '.join(keys)}) * {rows} ORDER BY {', '.join(order)}"


def key_columns(epoch: StagedEpoch) -> list[str]:
    """The columns of a staged table that have the keys."""
    return [f"c{epoch.names.index(key)}" for key in epoch.keys]


def added(epoch: StagedEpoch, staged: str) -> str:
    """A query for what an epoch adds to each total, with the columns of the table."""
    sources = iter(_data(epoch))
    found = []
    for name in epoch.names:
        how = epoch.totals.get(name)
        value = "count(*)" if how == "count" else next(sources)
        value = f"coalesce(sum({value}), 0)" if how == "sum" else f"{how}({value})" if how in ("min", "max") else value
        found.append(f"{value} AS {quoted(name)}")
    by = ", ".join(f"c{number}" for number in range(len(epoch.keys)))
    return f"SELECT {', '.join(found)} FROM {staged} WHERE {of_parts(epoch.parts)} GROUP BY {by}"


def _upsert(table: Table, epoch: StagedEpoch, staged: str) -> str:
    names, keys = epoch.names, [quoted(key) for key in epoch.keys]
    others = [quoted(name) for name in names if name not in epoch.keys]
    change = f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in others)}" if others else "NOTHING"
    same = " AND ".join(f"t.{key} = n.{column}" for key, column in zip(keys, key_columns(epoch), strict=True))
    gone = f", gone AS (DELETE FROM {table.sql} t USING newest n WHERE n.{DELETED} AND {same})" if epoch.deletes else ""
    return (
        f"WITH newest AS MATERIALIZED ({newest(epoch, staged)}){gone} "
        f"INSERT INTO {table.sql} ({', '.join(map(quoted, names))}) SELECT {', '.join(_data(epoch))} FROM newest"
        f"{f' WHERE NOT {DELETED}' if epoch.deletes else ''} ON CONFLICT ({', '.join(keys)}) DO {change}"
    )


def _accumulate(table: Table, epoch: StagedEpoch, staged: str) -> str:
    changes = []
    for name, how in epoch.totals.items():
        old, new = f"t.{quoted(name)}", f"EXCLUDED.{quoted(name)}"
        both = {"min": f"least({old}, {new})", "max": f"greatest({old}, {new})"}.get(how, f"coalesce({old}, 0) + {new}")
        changes.append(f"{quoted(name)} = {both}")
    return (
        f"INSERT INTO {table.sql} AS t ({', '.join(map(quoted, epoch.names))}) {added(epoch, staged)} "
        f"ON CONFLICT ({', '.join(map(quoted, epoch.keys))}) DO UPDATE SET {', '.join(changes)}"
    )


def _data(epoch: StagedEpoch) -> list[str]:
    """The columns of a staged table that are written."""
    counted = [name for name, how in epoch.totals.items() if how == "count"]
    return [f"c{number}" for number in range(len(epoch.names) - len(counted))]
