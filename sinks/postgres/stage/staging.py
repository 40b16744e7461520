"""The first phase, in the driver: Spark's tasks stage the rows, and what only the server knows is checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.errors import PySparkException

from epochal.participant import BadRows, Batch, FencedOut, Refused, StoreAway, digest_text, failpoints
from epochal.sinks.postgres import commit, digests
from epochal.sinks.postgres.connection import Endpoint, transaction, translating
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import of_parts, own, quoted
from epochal.sinks.postgres.ledger import Ledger
from epochal.sinks.postgres.options import PostgresOptions
from epochal.sinks.postgres.stage import copying, keys
from epochal.sinks.postgres.stage.copying import Staging
from epochal.sinks.postgres.stage.encoding import BITS
from epochal.sinks.postgres.stage.plan import Plan, faults_of, plan
from epochal.sinks.postgres.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INLINE = 128 * 1024  # bytes of a task that need no table
Database = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages epochs for the table as it is now."""

    options: PostgresOptions
    endpoint: Endpoint
    ledger: Ledger
    table: Table

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that Spark can tell the table cannot hold, with the reason for each."""
        return self._plan(rows, 0).rejected(rows)

    def stage(self, batch: Batch[DataFrame]) -> tuple[StagedEpoch, int, int]:
        """Stage an epoch; what its handle says, how many bytes there are, and how many rows it was given."""
        how = self._plan(batch.rows, batch.attempt.epoch)
        staging = self._staging(batch, how)
        failpoints.hit("before-attempt")
        with self._transaction() as db:
            self.ledger.begin(db, batch.attempt)
            if not staging.is_text:
                staging.make(db)
        failpoints.hit("after-attempt")
        try:
            return self._staged(batch, how, staging)
        except BadRows:
            with self._transaction() as db:
                self.ledger.discard(db, batch.attempt)
            raise

    def _plan(self, rows: DataFrame, epoch: int) -> Plan:
        if faults := faults_of(rows, self.table, self.options):
            lines = "".join(f"\n  - {fault}" for fault in faults)
            raise BadRows(
                f"sink {self.options.name!r}: the frame does not fit the table {self.table.sql}:{lines}\nNothing of "
                "the epoch was written"
            )
        return plan(rows, self.table, self.options, epoch)

    def _staging(self, batch: Batch[DataFrame], how: Plan) -> Staging:
        # Text can become rows without another look at them only if Spark has checked all about them.
        # In a database of another encoding, not even Spark's check of characters and their number holds.
        is_text = self.options.mode == "append" and how.is_checked and not self.options.digest and self.table.is_utf8
        return Staging(
            endpoint=self.endpoint,
            schema=self.ledger.schema,
            relation=self.ledger.relation(batch.attempt),
            declared=tuple(how.declared),
            names=tuple(how.names),
            row=self.ledger.row(batch.attempt),
            inline=INLINE if is_text else 0,
            is_text=is_text,
        )

    def _staged(self, batch: Batch[DataFrame], how: Plan, staging: Staging) -> tuple[StagedEpoch, int, int]:
        done = self._run(how.lines(batch.rows), staging)
        unfit = self._check(done, how)
        filed = staging.is_text and all(task["data"] is not None for task in done)
        held = [(int(task["part"]), bytes(task["data"])) for task in done if task["data"]]
        epoch = StagedEpoch(
            mode=self.options.mode,
            columns=how.columns,
            keys=tuple(self.options.keys),
            totals=self.options.total_columns,
            order=how.order,
            deletes=how.deletes,
            parts=() if filed else tuple(sorted(int(task["part"]) for task in done)),
            filed=filed,
            size=sum(int(task["size"]) for task in done) if staging.is_text and not filed else 0,
            rows=sum(int(task["rows"]) for task in done),
            offsets=batch.offsets,
        )
        staged: bytes | str = b"".join(data for _, data in held) if filed else own(staging.schema, staging.relation)
        failpoints.hit("before-filed")
        with self._transaction(batch) as db:
            if isinstance(staged, bytes):
                self.ledger.file(db, batch.attempt, staged)
            else:
                _copy(db, staging, held)
                epoch = self._checked(db, how, epoch, staged)
            longest = max((int(task["longest"]) for task in done), default=0)
            self._check_constraints(db, epoch, staged, longest)
        failpoints.hit("after-filed")
        return epoch, len(staged) if isinstance(staged, bytes) else epoch.size, epoch.rows + unfit

    def _run(self, lines: DataFrame, staging: Staging) -> list[Any]:
        try:
            return lines.mapInArrow(partial(copying.staged, staging=staging), copying.RESULT).collect()
        except PySparkException as fault:
            if any(f"No module named '{name}" in str(fault) for name in ("epochal", "psycopg")):
                raise Refused(
                    f"sink {self.options.name!r}: the executors' Python has no epochal, or no psycopg. Nothing was "
                    "written. Install epochal[postgres] there, or name the interpreter that has it: PYSPARK_PYTHON"
                ) from fault
            raise

    def _check(self, done: Iterable[Any], how: Plan) -> int:
        """Raise what the tasks had to say; how many rows were left out."""
        sink, unfit = f"sink {self.options.name!r}", Counter[int]()
        for task in done:
            if task["fault"] is not None:
                raise self._fault(json.loads(task["fault"]), how)
            unfit.update({int(number): count for number, count in json.loads(task["unfit"] or "{}").items()})
        if unfit and self.options.dead_letters is None:
            reasons = how.reasons()
            found = "; ".join(f"{reasons[number]} in {_rows(count)}" for number, count in sorted(unfit.items()))
            raise BadRows(
                f"{sink}: {self.table.sql} cannot hold {found}. Nothing of the epoch was written. "
                "Filter the rows out, or give dead_letters="
            )
        return unfit.total()

    def _fault(self, fault: dict[str, Any], how: Plan) -> Exception:
        sink = f"sink {self.options.name!r}"
        if fault["kind"] == copying.GONE:
            return FencedOut(f"{sink}: what it was staging was removed: another driver has taken over")
        text = f"{sink}: {self.endpoint.place}: {fault['text']}"
        if fault["kind"] == copying.AWAY:
            return StoreAway(text)
        if fault["kind"] == copying.VALUES:
            column = how.source_of(fault["column"])
            where = f"{column}: a value that {self.table.sql} cannot hold" if column else "a row does not fit"
            return BadRows(f"{sink}: {where} ({fault['state']}). Nothing of the epoch was written")
        return Refused(f"{text}. Nothing of the epoch was written")

    def _checked(self, db: Database, how: Plan, epoch: StagedEpoch, staged: str) -> StagedEpoch:
        """The epoch with its digest, once the server has seen that it can be shown."""
        if epoch.mode == "upsert" and (ties := _ties(db, epoch, staged)):
            by = "that order_by does not decide between" if epoch.order else "and no order_by to decide between them"
            raise self._bad(f"{_keys(ties)} several rows {by}")
        if epoch.mode == "accumulate" and (large := _too_large(db, self.table, epoch, staged)):
            raise self._bad(f"{', '.join(large)}: a total would be too large for its column; make that wider")
        if not self.options.digest:
            return epoch
        (_, value), *_ = digests.of_rows(db, staged, how.names, of_parts(epoch.parts)).values()
        return replace(epoch, digest=digest_text(value))

    def _check_constraints(self, db: Database, epoch: StagedEpoch, staged: bytes | str, longest: int) -> None:
        """BadRows, or an error of the server's, if it would refuse the rows."""
        if self.table.needs_trial(epoch.keys, longest):
            if not ((epoch.filed or epoch.size) and keys.can_check(self.table, epoch, longest)):
                if dropped := _try(db, self.table, epoch, staged):
                    raise self._bad(
                        f"a trigger of {self.table.sql} drops {_rows(dropped)}, so the epoch would not be whole there. "
                        "Filter the rows in the query, or remove the trigger"
                    )
                return
            if (index := keys.taken(db, self.table, epoch, staged)) is not None:
                raise self._bad(f"{self.table.sql} has rows with these keys (23505, constraint {index!r})")
        if epoch.mode == "append" and epoch.rows and self.table.fills(epoch.names):
            with db.transaction(force_rollback=True):
                commit.show_one(db, self.table, epoch, staged)

    def _bad(self, what: str) -> BadRows:
        return BadRows(f"sink {self.options.name!r}: {what}. Nothing of the epoch was written")

    @contextmanager
    def _transaction(self, batch: Batch[DataFrame] | None = None) -> Iterator[Database]:
        what = "" if batch is None else f"{self.table.sql}, epoch {batch.attempt.epoch}"
        with translating(self.options.name, self.endpoint, what), transaction(self.endpoint, "stages") as db:
            yield db


def _copy(db: Database, staging: Staging, held: Sequence[tuple[int, bytes]]) -> None:
    """The rows of small tasks, to those of large ones."""
    if not held:
        return
    staging.make(db)
    with ExitStack() as opened:
        copies = staging.copying(db, opened)
        for part, data in held:
            copies.write(part, data)


def _try(db: Database, table: Table, epoch: StagedEpoch, staged: bytes | str) -> int:
    """Show the epoch, and take it back: constraints and triggers have their say. How many rows triggers drop."""
    with db.transaction(force_rollback=True):
        written, wanted = commit.show(db, table, epoch, staged)
        db.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return 0 if wanted is None or not table.has_triggers else wanted - written


def _ties(db: Database, epoch: StagedEpoch, staged: str) -> int:
    """How many keys have several rows that are the last."""
    keys = ", ".join(commit.key_columns(epoch))
    order = ", ".join(f"o{n} DESC NULLS LAST" for n in range(epoch.order))
    ranked = f"rank() OVER (PARTITION BY {keys}{f' ORDER BY {order}' if order else ''}) AS place"
    last = f"SELECT {keys} FROM (SELECT {keys}, {ranked} FROM {staged} WHERE {of_parts(epoch.parts)}) r"
    found = db.execute(
        f"SELECT count(*) FROM ({last} WHERE place = 1 GROUP BY {keys} HAVING count(*) > 1) several"
    ).fetchone()
    assert found is not None
    return int(found[0])


def _too_large(db: Database, table: Table, epoch: StagedEpoch, staged: str) -> list[str]:
    """The totals that would leave the range of their columns."""
    limits = {}
    for name, how in epoch.totals.items():
        kind = table.columns[name].type
        if how in ("sum", "count") and kind.name in BITS:
            limits[name] = (-(1 << BITS[kind.name] - 1), (1 << BITS[kind.name] - 1) - 1)
        elif how in ("sum", "count") and kind.digits is not None:
            most = 10 ** (kind.digits[0] - kind.digits[1])
            limits[name] = (-most, most)
    if not limits:
        return []
    keys = " AND ".join(f"t.{quoted(key)} = n.{quoted(key)}" for key in epoch.keys)
    tests = []
    for name, (least, most) in limits.items():
        total = f"coalesce(t.{quoted(name)}, 0)::numeric + n.{quoted(name)}::numeric"
        strict = table.columns[name].type.digits is not None
        tests.append(f"bool_or({total} {'<=' if strict else '<'} {least} OR {total} {'>=' if strict else '>'} {most})")
    query = f"SELECT {', '.join(tests)} FROM ({commit.added(epoch, staged)}) n LEFT JOIN {table.sql} t ON {keys}"
    found = db.execute(query).fetchone()
    assert found is not None
    return [name for name, is_large in zip(limits, found, strict=True) if is_large]


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"


def _keys(count: int) -> str:
    return f"{count} key{'s have' if count != 1 else ' has'}"
