"""What the workers do to rows while an epoch is staged: judge each, encode it, keep one of a key.

Rows come sorted by primary key and then by `order_by`, with all rows of a key in one task, so that
looking at neighbours is enough.
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
class Shape:
    """What the staged rows are made of."""

    kinds: Mapping[str, Cql]  # of the columns that are written, in order
    partition_key: tuple[str, ...]
    clustering_key: tuple[str, ...]
    order: tuple[str, ...]  # columns of the frame, there for the order only
    truncate: bool
    max_row_bytes: int
    deletes: bool
    expires: bool
    latest: int  # seconds since 1970: what expires later cannot be held
    unset: bool = False  # a null leaves the column alone
    accumulates: bool = False  # values are needed one by one; what is equal has been added up

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition_key + self.clustering_key


@dataclass(slots=True)
class Judged:
    """Some rows, each with its bytes or what is wrong with it."""

    frame: pa.RecordBatch
    staged: pa.RecordBatch
    last: Mask  # the last row of its key
    faults: list[tuple[Mask, str]]


def judged(batches: Iterator[pa.RecordBatch], shape: Shape) -> Iterator[Judged]:
    """Every row once, in order. One is held back at the end of each batch, until its neighbour is known."""
    held: pa.RecordBatch | None = None
    held_tied = False
    for batch in batches:
        if batch.num_rows == 0:
            continue
        found = batch if held is None else _joined(held, batch)
        answer, tied = _judge(found, shape, tied_before=held_tied)
        if found.num_rows > 1:
            yield _cut(answer, found.num_rows - 1)
        held, held_tied = found.slice(found.num_rows - 1), tied
    if held is not None:
        yield _judge(held, shape, tied_before=held_tied)[0]


def staged(batches: Iterator[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    """What a worker writes to the staging area; a row with a fault ends the job."""
    for some in judged(batches, shape):
        for mask, reason in some.faults:
            if mask.any():
                raise ValueError(marked(reason))
        kept = some.staged.filter(pa.array(some.last))
        yield kept if shape.accumulates else _packed(kept, shape)


def _packed(staged_rows: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The columns of each row as one, as a batch carries them."""
    columns = [staged_rows.column(name) for name in shape.kinds]
    rest = {name: staged_rows.column(name) for name in staged_rows.schema.names if name not in shape.kinds}
    return pa.RecordBatch.from_pydict({ROW: encoding.packed(columns, unset=shape.unset), **rest})


def with_errors(batches: Iterator[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    """The frame's own rows with a text that says what is wrong with each, or null."""
    for some in judged(batches, shape):
        errors: list[str | None] = [None] * some.frame.num_rows
        for mask, reason in some.faults:
            for row in np.flatnonzero(mask):
                errors[row] = reason if errors[row] is None else f"{errors[row]}; {reason}"
        columns = [*some.frame.columns, pa.array(errors, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [*some.frame.schema.names, ERROR])


def _joined(held: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    (found,) = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()
    return found


def _cut(answer: Judged, rows: int) -> Judged:
    faults = [(mask[:rows], reason) for mask, reason in answer.faults]
    return Judged(answer.frame.slice(0, rows), answer.staged.slice(0, rows), answer.last[:rows], faults)


def _judge(batch: pa.RecordBatch, shape: Shape, *, tied_before: bool) -> tuple[Judged, bool]:
    rows = batch.num_rows
    faults: list[tuple[Mask, str]] = []
    gone = _mask(batch.column(DELETE)) if shape.deletes else np.zeros(rows, dtype=bool)
    columns: dict[str, pa.Array] = {}
    for name, kind in shape.kinds.items():
        found = encoding.encode(batch.column(name), kind, truncate=shape.truncate)
        columns[name] = found.values
        relevant = np.ones(rows, dtype=bool) if name in shape.key else ~gone
        faults += [(mask & relevant, f"a row's {name} {reason}") for mask, reason in found.faults]
    for name in shape.key:
        empty = _mask(pc.is_null(batch.column(name)))
        faults.append((empty, f"the key column {name} is null in a row"))
        columns[name] = columns[name].fill_null(b"")
    faults += _too_long(columns, shape)
    sizes = sum(pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False) for column in columns.values())
    faults.append(
        (np.asarray(sizes) > shape.max_row_bytes, f"a row has more than {shape.max_row_bytes} bytes ({_WHOSE})")
    )
    same = _same(columns, shape.key, rows)
    tied, tied_on = _ties(batch, shape, same)
    tied[0] |= tied_before
    faults.append((tied, _tie_reason(shape)))
    extra: dict[str, pa.Array] = {KEY: encoding.routing_key([columns[name] for name in shape.partition_key])}
    if shape.deletes:
        extra[DELETE] = batch.column(DELETE)
    if shape.expires:
        extra[EXPIRY], bad = _expiries(batch.column(EXPIRY), shape)
        faults.append((bad, f"a row expires after {day(shape.latest)}, which this server cannot hold"))
    last = np.append(~same, True)
    staged_rows = pa.RecordBatch.from_pydict({**columns, **extra})
    return Judged(batch, staged_rows, last, [f for f in faults if f[0].any()]), tied_on


def _too_long(columns: Mapping[str, pa.Array], shape: Shape) -> list[tuple[Mask, str]]:
    faults = []
    for name in shape.key:
        lengths = pc.binary_length(columns[name]).to_numpy(zero_copy_only=False)
        faults.append(
            (lengths > LONGEST_KEY, f"a row's {name} is longer than {LONGEST_KEY} bytes, and part of the key")
        )
    if len(shape.partition_key) == 1:
        (name,) = shape.partition_key
        empty = pc.binary_length(columns[name]).to_numpy(zero_copy_only=False) == 0
        faults.append((empty, f"a row's {name} is empty, which Cassandra has no partition for"))
    return faults


def _same(columns: Mapping[str, pa.Array], key: tuple[str, ...], rows: int) -> Mask:
    """Whether each row but the last has the key of the next."""
    same = np.ones(rows - 1, dtype=bool)
    for name in key:
        same &= _mask(pc.equal(columns[name].slice(1), columns[name].slice(0, rows - 1)))
    return same


def _ties(batch: pa.RecordBatch, shape: Shape, same: Mask) -> tuple[Mask, bool]:
    """Rows that nothing tells from a neighbour of the same key; and whether the last one is among them."""
    tied = np.zeros(batch.num_rows, dtype=bool)
    if shape.accumulates:
        return tied, False
    equal = same.copy()
    for name in shape.order:
        values: Any = batch.column(name)
        left, right = values.slice(0, batch.num_rows - 1), values.slice(1)
        both_null = _mask(pc.and_(pc.is_null(left), pc.is_null(right)))
        equal &= _mask(pc.equal(left, right)) | both_null
    tied[:-1] |= equal
    tied[1:] |= equal
    return tied, bool(tied[-1])


def _tie_reason(shape: Shape) -> str:
    names = ", ".join(shape.key)
    if not shape.order:
        return f"several rows of one epoch have the same {names}; say which wins by order_by"
    return f"two rows of one epoch have the same {names} and the same order; order_by must tell them apart"


def _expiries(micros: pa.Array, shape: Shape) -> tuple[pa.Array, Mask]:
    numbers = micros.fill_null(0).to_numpy(zero_copy_only=False)
    seconds = -(-numbers // 1_000_000)
    present = _mask(pc.is_valid(micros))
    found = pa.array(seconds, pa.int64(), mask=~present)
    return found, present & (seconds > shape.latest)


def _mask(column: pa.Array) -> Mask:
    filled = column.fill_null(False) if column.null_count else column
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=bool)
