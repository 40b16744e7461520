"""What the workers do with rows while an epoch is staged: check each, encode it, take the last one of each key.

Rows come sorted by primary key and then by `order_by`, with all rows of a key in one task. So a row is compared
with its neighbours only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from epochal.sinks.cassandra.cluster.cql import Cql
from epochal.sinks.cassandra.cluster.limits import day
from epochal.sinks.cassandra.layout import DELETE, EXPIRY, KEY, ROW
from epochal.sinks.cassandra.stage import encoding
from epochal.sinks.cassandra.stage.encoding import Mask
from epochal.sinks.spark.reasons import marked

ERROR = "_error"
LONGEST_KEY = 65_535
_WHOSE = "max_row_bytes, or what the server's settings allow"


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How the rows of a frame are staged: columns, types, key, order and limits."""

    kinds: Mapping[str, Cql]  # of the columns that are written, in order
    partition_key: tuple[str, ...]
    clustering_key: tuple[str, ...]
    order: tuple[str, ...]  # columns of the frame that only give the order
    truncate: bool
    max_row_bytes: int
    deletes: bool
    expires: bool
    latest: int  # seconds since 1970: the latest expiry that the server can store
    unset: bool = False  # a null leaves the column alone
    accumulates: bool = False  # a column each, for totals; the frame has one row per key

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition_key + self.clustering_key


@dataclass(slots=True)
class CheckedRows:
    """Some rows, each with its bytes or the reasons why the table cannot hold it."""

    frame: pa.RecordBatch
    staged: pa.RecordBatch
    last: Mask  # the last row of its key
    faults: list[tuple[Mask, str]]


def checked(batches: Iterator[pa.RecordBatch], row_format: RowFormat) -> Iterator[CheckedRows]:
    """Every row once, in order. The last one of each batch waits for its neighbour in the next batch."""
    held: pa.RecordBatch | None = None
    held_tied = False
    for batch in batches:
        if batch.num_rows == 0:
            continue
        found = batch if held is None else _joined(held, batch)
        answer, tied = _check(found, row_format, tied_before=held_tied)
        if found.num_rows > 1:
            yield _cut(answer, found.num_rows - 1)
        held, held_tied = found.slice(found.num_rows - 1), tied
    if held is not None:
        yield _check(held, row_format, tied_before=held_tied)[0]


def staged(batches: Iterator[pa.RecordBatch], row_format: RowFormat) -> Iterator[pa.RecordBatch]:
    """What a worker writes to the staging area. A row that the table cannot hold fails the job."""
    for some in checked(batches, row_format):
        for mask, reason in some.faults:
            if mask.any():
                raise ValueError(marked(reason))
        latest = some.staged.filter(pa.array(some.last))
        yield latest if row_format.accumulates else _packed(latest, row_format)


def _packed(staged_rows: pa.RecordBatch, row_format: RowFormat) -> pa.RecordBatch:
    """The columns of each row as one value, as the protocol's batches carry them."""
    columns = [staged_rows.column(name) for name in row_format.kinds]
    rest = {name: staged_rows.column(name) for name in staged_rows.schema.names if name not in row_format.kinds}
    return pa.RecordBatch.from_pydict({ROW: encoding.packed(columns, unset=row_format.unset), **rest})


def with_errors(batches: Iterator[pa.RecordBatch], row_format: RowFormat) -> Iterator[pa.RecordBatch]:
    """The frame's own rows, each with the reasons why the table cannot hold it, or null."""
    for some in checked(batches, row_format):
        errors: list[str | None] = [None] * some.frame.num_rows
        for mask, reason in some.faults:
            for row in np.flatnonzero(mask):
                errors[row] = reason if errors[row] is None else f"{errors[row]}; {reason}"
        columns = [*some.frame.columns, pa.array(errors, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [*some.frame.schema.names, ERROR])


def _joined(held: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    (found,) = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()
    return found


def _cut(answer: CheckedRows, rows: int) -> CheckedRows:
    faults = [(mask[:rows], reason) for mask, reason in answer.faults]
    return CheckedRows(answer.frame.slice(0, rows), answer.staged.slice(0, rows), answer.last[:rows], faults)


def _check(batch: pa.RecordBatch, row_format: RowFormat, *, tied_before: bool) -> tuple[CheckedRows, bool]:
    rows = batch.num_rows
    faults: list[tuple[Mask, str]] = []
    gone = _mask(batch.column(DELETE)) if row_format.deletes else np.zeros(rows, dtype=bool)
    columns: dict[str, pa.Array] = {}
    for name, kind in row_format.kinds.items():
        found = encoding.encode(batch.column(name), kind, truncate=row_format.truncate)
        columns[name] = found.values
        relevant = np.ones(rows, dtype=bool) if name in row_format.key else ~gone
        faults += [(mask & relevant, f"a row's {name} {reason}") for mask, reason in found.faults]
    for name in row_format.key:
        empty = _mask(pc.is_null(batch.column(name)))
        faults.append((empty, f"the key column {name} is null in a row"))
        columns[name] = columns[name].fill_null(b"")
    faults += _too_long(columns, row_format)
    sizes = sum(pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False) for column in columns.values())
    faults.append(
        (
            np.asarray(sizes) > row_format.max_row_bytes,
            f"a row has more than {row_format.max_row_bytes} bytes ({_WHOSE})",
        )
    )
    same = _same(columns, row_format.key, rows)
    tied, tied_on = _ties(batch, row_format, same)
    tied[0] |= tied_before
    faults.append((tied, _tie_reason(row_format)))
    extra: dict[str, pa.Array] = {KEY: encoding.routing_key([columns[name] for name in row_format.partition_key])}
    if row_format.deletes:
        extra[DELETE] = batch.column(DELETE)
    if row_format.expires:
        extra[EXPIRY], bad = _expiries(batch.column(EXPIRY), row_format)
        faults.append((bad, f"a row expires after {day(row_format.latest)}, which this server cannot hold"))
    last = np.append(~same, True)
    staged_rows = pa.RecordBatch.from_pydict({**columns, **extra})
    return CheckedRows(batch, staged_rows, last, [f for f in faults if f[0].any()]), tied_on


def _too_long(columns: Mapping[str, pa.Array], row_format: RowFormat) -> list[tuple[Mask, str]]:
    faults = []
    for name in row_format.key:
        lengths = pc.binary_length(columns[name]).to_numpy(zero_copy_only=False)
        faults.append(
            (lengths > LONGEST_KEY, f"a row's {name} is longer than {LONGEST_KEY} bytes, and part of the key")
        )
    if len(row_format.partition_key) == 1:
        (name,) = row_format.partition_key
        empty = pc.binary_length(columns[name]).to_numpy(zero_copy_only=False) == 0
        faults.append((empty, f"a row's {name} is empty, which Cassandra has no partition for"))
    return faults


def _same(columns: Mapping[str, pa.Array], key: tuple[str, ...], rows: int) -> Mask:
    """Whether each row but the last has the key of the next."""
    same = np.ones(rows - 1, dtype=bool)
    for name in key:
        same &= _mask(pc.equal(columns[name].slice(1), columns[name].slice(0, rows - 1)))
    return same


def _ties(batch: pa.RecordBatch, row_format: RowFormat, same: Mask) -> tuple[Mask, bool]:
    """Rows with the key and the order of a neighbour; and whether the last row is one of them."""
    tied = np.zeros(batch.num_rows, dtype=bool)
    if row_format.accumulates:
        return tied, False
    equal = same.copy()
    for name in row_format.order:
        values: Any = batch.column(name)
        left, right = values.slice(0, batch.num_rows - 1), values.slice(1)
        both_null = _mask(pc.and_(pc.is_null(left), pc.is_null(right)))
        equal &= _mask(pc.equal(left, right)) | both_null
    tied[:-1] |= equal
    tied[1:] |= equal
    return tied, bool(tied[-1])


def _tie_reason(row_format: RowFormat) -> str:
    names = ", ".join(row_format.key)
    if not row_format.order:
        return f"several rows of one epoch have the same {names}; set order_by to say which wins"
    return f"two rows of one epoch have the same {names} and the same order; add a column to order_by that differs"


def _expiries(micros: pa.Array, row_format: RowFormat) -> tuple[pa.Array, Mask]:
    numbers = micros.fill_null(0).to_numpy(zero_copy_only=False)
    seconds = -(-numbers // 1_000_000)
    present = _mask(pc.is_valid(micros))
    found = pa.array(seconds, pa.int64(), mask=~present)
    return found, present & (seconds > row_format.latest)


def _mask(column: pa.Array) -> Mask:
    filled = column.fill_null(False) if column.null_count else column
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=bool)
