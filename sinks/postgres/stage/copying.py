"""What an executor does with its lines: a few of them go back to the driver, many are copied into the staged table.

Each run of a task has a random number, its part, which is in each of its rows. The driver shows only the parts that
Spark reports to it, one for each task. So a task that runs twice, a speculative one, or one of a driver that has died,
may copy what it likes. Faults are returned as rows too: Spark's own would have rows of data in them.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from epochal.participant import failpoints
from epochal.sinks.postgres import failpoints as _failpoints  # noqa: F401  # which registers them
from epochal.sinks.postgres.connection import QUIET, Endpoint, begun, brief, column_of, is_away
from epochal.sinks.postgres.layout import PART, own

RESULT = "part long, rows long, data binary, unfit string, fault string"
SCHEMA = pa.schema(
    [("part", pa.int64()), ("rows", pa.int64()), ("data", pa.binary()), ("unfit", pa.string()), ("fault", pa.string())]
)
AWAY, GONE, VALUES, OTHER = "away", "gone", "values", "other"  # kinds of faults
LONGEST = 1 << 53  # a part is a number that JSON keeps exactly


class GivenUpError(Exception):
    """What was copied is not wanted: its transaction is rolled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where rows of an attempt go. It goes to the executors, and has the password."""

    endpoint: Endpoint
    schema: str
    relation: str  # the staged table
    declared: tuple[str, ...]  # its columns as SQL has them
    names: tuple[str, ...]
    row: tuple[str, str, str]  # the attempt's row in `staged`: target, lineage, attempt
    inline: int  # bytes of a task that go back to the driver

    @property
    def copy(self) -> str:
        """The statement that copies lines."""
        return f"COPY {own(self.schema, self.relation)} ({', '.join((PART, *self.names))}) FROM STDIN"

    def make(self, db: psycopg.Connection[Any]) -> None:
        """Make the staged table, unless it is there. LookupError if the attempt was given up."""
        if db.execute("SELECT to_regclass(%s)", (own(self.schema, self.relation),)).fetchone() != (None,):
            return
        staged = f"SELECT FROM {own(self.schema, 'staged')} WHERE (target, lineage, attempt) = (%s, %s, %s) FOR UPDATE"
        if db.execute(staged, self.row).fetchone() is None:
            raise LookupError(self.relation)
        columns = ", ".join((f"{PART} bigint NOT NULL", *self.declared))
        db.execute(f"CREATE TABLE IF NOT EXISTS {own(self.schema, self.relation)} ({columns})")


def staged(batches: Iterator[pa.RecordBatch], staging: Staging) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: stage a task's lines; one row says what became of them."""
    task = Task(staging)
    try:
        for batch in batches:
            task.take(batch.column(0), batch.column(1))
        found = task.end()
    except psycopg.Error as error:
        kind = AWAY if is_away(error) else VALUES if (error.sqlstate or "").startswith(QUIET) else OTHER
        found = task.failed(kind, error)
    except LookupError:
        found = task.failed(GONE, None)
    finally:
        task.close()
    if found is not None:
        yield pa.RecordBatch.from_pylist([found], schema=SCHEMA)


class Task:
    """One run of a task."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._part = secrets.randbelow(LONGEST)
        self._rows, self._size = 0, 0
        self._held: list[bytes] = []
        self._unfit: Counter[int] = Counter()
        self._open = ExitStack()
        self._copying: psycopg.Cursor[Any] | None = None
        self._write: Callable[[bytes | memoryview], None] | None = None

    def take(self, lines: pa.Array, unfit: pa.Array) -> None:
        """Stage lines; those that have a number in `unfit` are only counted."""
        if unfit.null_count < len(unfit):
            self._unfit.update(one for one in unfit.to_pylist() if one is not None)
            lines = lines.filter(pc.is_null(unfit))
        if not len(lines):
            return
        self._rows += len(lines)
        if self._write is None and self._size + lines.nbytes <= self._staging.inline:
            self._held.append(joined(lines, b"").to_pybytes())
            self._size += len(self._held[-1])
            return
        start = b"%d\t" % self._part
        if self._write is None:
            self._write = self._begin()
            for data in self._held:
                self._write(with_part(data, self._part))
            self._held.clear()
        self._write(start)
        self._write(memoryview(joined(lines, start)))

    def end(self) -> dict[str, Any] | None:
        """Make it durable; what the driver has to know. None if there was nothing."""
        if self._write is not None:
            failpoints.hit("before-copied")
            self._open.close()
            failpoints.hit("after-copied")
            assert self._copying is not None
            if self._copying.rowcount != self._rows:
                raise psycopg.DataError(f"of {self._rows} rows that were copied it counted {self._copying.rowcount}")
        if not self._rows and not self._unfit:
            return None
        unfit = json.dumps(self._unfit) if self._unfit else None
        held = b"".join(self._held) if self._write is None else None
        return {"part": self._part, "rows": self._rows, "data": held, "unfit": unfit, "fault": None}

    def failed(self, kind: str, error: psycopg.Error | None) -> dict[str, Any]:
        """What the driver has to know of a fault."""
        told = {"kind": kind} | (
            {} if error is None else {"text": brief(error), "column": column_of(error), "state": error.sqlstate}
        )
        return {"part": self._part, "rows": 0, "data": None, "unfit": None, "fault": json.dumps(told)}

    def close(self) -> None:
        """Give up what is not durable."""
        with suppress(GivenUpError, psycopg.Error, OSError):
            self._open.pop_all().__exit__(GivenUpError, GivenUpError(), None)

    def _begin(self) -> Callable[[bytes | memoryview], None]:
        endpoint = self._staging.endpoint
        db = self._open.enter_context(endpoint.connect("stages"))
        with begun(db, "stages"):  # in a transaction of its own: other tasks wait for the lock
            self._staging.make(db)
        self._open.enter_context(begun(db, "stages"))
        self._copying = db.cursor()
        return self._open.enter_context(self._copying.copy(self._staging.copy)).write


def joined(lines: pa.Array, between: bytes) -> pa.Buffer:
    """All lines in one piece, with something between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines.cast(pa.binary()))
    return pc.binary_join(whole, between)[0].as_buffer()


def with_part(data: bytes, part: int) -> bytes:
    r"""Lines, each with its part before it.

    >>> with_part(b"a\tb\nc\td\n", 7)
    b'7\ta\tb\n7\tc\td\n'
    """
    start = b"%d\t" % part
    return start + data[:-1].replace(b"\n", b"\n" + start) + b"\n"
