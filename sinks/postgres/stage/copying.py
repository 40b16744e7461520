"""What an executor does with its lines: a few of them go back to the driver, many go into the staged table.

There they become typed rows; or they stay text, in pieces, where Spark has checked all about them. Text costs the
server a fifth of what rows cost, and becomes rows once, when the epoch is shown.

Each run of a task has a random number, its part, which is in each of its rows. The driver shows only the parts that
Spark reports to it, one for each task. So a task that runs twice, a speculative one, or one of a driver that has died,
may copy what it likes. Faults are returned as rows too: Spark's own would have rows of data in them.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from epochal.participant import failpoints
from epochal.sinks.postgres import failpoints as _failpoints  # noqa: F401  # which registers them
from epochal.sinks.postgres.connection import QUIET, Endpoint, begun, brief, column_of, is_away
from epochal.sinks.postgres.layout import PART, PIECE, own

RESULT = "part long, rows long, size long, longest long, data binary, unfit string, fault string"
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("part", "rows", "size", "longest")),
        *(("data", pa.binary()), ("unfit", pa.string()), ("fault", pa.string())),
    ]
)
AWAY, GONE, VALUES, OTHER = "away", "gone", "values", "other"  # kinds of faults
LONGEST = 1 << 53  # a part is a number that JSON keeps exactly
LARGEST_PIECE = 1 << 20  # bytes
LONGEST_LINE = (1 << 30) - (1 << 16)  # bytes that COPY takes as a line
PIECE_DECLARED = ("number integer NOT NULL", "data bytea NOT NULL")
LZ4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"


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
    is_text: bool  # lines are stored as they are

    @property
    def copy(self) -> str:
        """The statement that copies lines, or pieces of them."""
        names, form = (PIECE, " (FORMAT BINARY)") if self.is_text else ((PART, *self.names), "")
        return f"COPY {own(self.schema, self.relation)} ({', '.join(names)}) FROM STDIN{form}"

    def make(self, db: psycopg.Connection[Any]) -> None:
        """Make the staged table, unless it is there. LookupError if the attempt was given up."""
        if db.execute("SELECT to_regclass(%s)", (own(self.schema, self.relation),)).fetchone() != (None,):
            return
        staged = f"SELECT FROM {own(self.schema, 'staged')} WHERE (target, lineage, attempt) = (%s, %s, %s) FOR UPDATE"
        if db.execute(staged, self.row).fetchone() is None:
            raise LookupError(self.relation)
        declared = PIECE_DECLARED if self.is_text else self.declared
        columns = ", ".join((f"{PART} bigint NOT NULL", *declared))
        db.execute(f"CREATE TABLE IF NOT EXISTS {own(self.schema, self.relation)} ({columns})")
        if self.is_text:
            # The server's other way to compress takes longer than to store the text.
            has_lz4 = db.execute(LZ4).fetchone() == (True,)
            how = "COMPRESSION lz4" if has_lz4 else "STORAGE EXTERNAL"
            db.execute(f"ALTER TABLE {own(self.schema, self.relation)} ALTER data SET {how}")

    def copying(self, db: psycopg.Connection[Any], opened: ExitStack) -> Copying:
        """A COPY into the staged table, which ends with the stack."""
        cursor = db.cursor()
        copy = opened.enter_context(cursor.copy(self.copy))
        if not self.is_text:
            return Copying(cursor, copy)
        copy.set_types(["int8", "int4", "bytea"])
        return Pieces(cursor, copy)


@dataclass(slots=True)
class Copying:
    """Lines on their way into typed columns."""

    cursor: psycopg.Cursor[Any]
    copy: psycopg.Copy

    def write(self, part: int, lines: bytes | pa.Array) -> None:
        if isinstance(lines, bytes):
            self.copy.write(with_part(lines, part))
            return
        start = b"%d\t" % part
        self.copy.write(start)
        self.copy.write(memoryview(joined(lines, start)))

    def wrong(self, rows: int) -> str | None:
        """What is wrong once the COPY has ended."""
        found = self.cursor.rowcount
        return None if found == rows else f"of {rows} rows that were copied it counted {found}"


@dataclass(slots=True)
class Pieces(Copying):
    """Lines on their way as text."""

    pieces: int = 0

    def write(self, part: int, lines: bytes | pa.Array) -> None:
        text = lines if isinstance(lines, bytes) else text_of(lines)
        for start in range(0, len(text), LARGEST_PIECE):
            self.copy.write_row((part, self.pieces, text[start : start + LARGEST_PIECE]))
            self.pieces += 1

    def wrong(self, rows: int) -> str | None:  # noqa: ARG002  # of text the server counts pieces
        found = self.cursor.rowcount
        return None if found == self.pieces else f"of {self.pieces} pieces that were copied it counted {found}"


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
        self._rows, self._size, self._longest = 0, 0, 0
        self._held: list[bytes] = []
        self._unfit: Counter[int] = Counter()
        self._open = ExitStack()
        self._copying: Copying | None = None

    def take(self, lines: pa.Array, unfit: pa.Array) -> None:
        """Stage lines; those that have a number in `unfit` are only counted."""
        if unfit.null_count < len(unfit):
            self._unfit.update(one for one in unfit.to_pylist() if one is not None)
            lines = lines.filter(pc.is_null(unfit))
        if not len(lines):
            return
        text = text_of(lines)
        self._rows += len(lines)
        self._size += len(text)
        self._longest = max(self._longest, pc.max(pc.binary_length(lines)).as_py())
        if self._longest > LONGEST_LINE:
            raise psycopg.DataError("a row has more than 1 GiB as text, which the server does not read")
        if self._copying is None and self._size <= self._staging.inline:
            self._held.append(bytes(text))
            return
        if self._copying is None:
            self._copying = self._begin()
            for data in self._held:
                self._copying.write(self._part, data)
            self._held.clear()
        self._copying.write(self._part, lines)

    def end(self) -> dict[str, Any] | None:
        """Make it durable; what the driver has to know. None if there was nothing."""
        if self._copying is not None:
            failpoints.hit("before-copied")
            self._open.close()
            failpoints.hit("after-copied")
            if wrong := self._copying.wrong(self._rows):
                raise psycopg.DataError(wrong)
        if not self._rows and not self._unfit:
            return None
        unfit = json.dumps(self._unfit) if self._unfit else None
        held = b"".join(self._held) if self._copying is None else None
        return self._result(rows=self._rows, size=self._size, data=held, unfit=unfit)

    def failed(self, kind: str, error: psycopg.Error | None) -> dict[str, Any]:
        """What the driver has to know of a fault."""
        told = {"kind": kind} | (
            {} if error is None else {"text": brief(error), "column": column_of(error), "state": error.sqlstate}
        )
        return self._result(fault=json.dumps(told))

    def _result(self, **known: Any) -> dict[str, Any]:
        empty = {"rows": 0, "size": 0, "data": None, "unfit": None, "fault": None}
        return {"part": self._part, "longest": self._longest, **empty, **known}

    def close(self) -> None:
        """Give up what is not durable."""
        with suppress(GivenUpError, psycopg.Error, OSError):
            self._open.pop_all().__exit__(GivenUpError, GivenUpError(), None)

    def _begin(self) -> Copying:
        endpoint = self._staging.endpoint
        db = self._open.enter_context(endpoint.connect("stages"))
        with begun(db, "stages"):  # in a transaction of its own: other tasks wait for the lock
            self._staging.make(db)
        self._open.enter_context(begun(db, "stages"))
        return self._staging.copying(db, self._open)


def text_of(lines: pa.Array) -> memoryview:
    r"""All lines in one piece, as they are in memory. None of them may be null.

    >>> bytes(text_of(pa.array(["a", "b\n", "cd\n", "e"])[1:3]))
    b'b\ncd\n'
    """
    _, offsets, data = lines.buffers()
    large = pa.types.is_large_string(lines.type) or pa.types.is_large_binary(lines.type)
    each = memoryview(offsets).cast("q" if large else "i")
    return memoryview(data).cast("B")[each[lines.offset] : each[lines.offset + len(lines)]]


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
