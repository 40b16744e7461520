"""What is staged of a frame: which columns, in which types, and what would make rows unfit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql import types as t

from epochal.participant import quoted
from epochal.sinks.postgres.options import PostgresOptions
from epochal.sinks.postgres.stage import encoding
from epochal.sinks.postgres.table import Column, Table, Type

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

LINE, UNFIT = "line", "unfit"
ERROR = "_error"
ADDED = {"int8": "bigint", "numeric": "numeric", "float8": "double precision"}  # what sums are made of


@dataclass(frozen=True, slots=True)
class Piece:
    """A column of staged rows."""

    source: str  # the frame's column, for messages
    value: Any  # of Spark: what it is made of
    kind: t.DataType
    type: Type
    declared: str  # its type in a staged table
    null: Any = None  # of Spark: when a null is unfit; None for never


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns of staged rows, in the order of a staged table."""

    columns: tuple[tuple[str, str], ...]  # of the table, with their types
    pieces: tuple[Piece, ...]
    order: int
    deletes: bool
    is_checked: bool  # whether Spark checks everything about the values

    @property
    def names(self) -> list[str]:
        """The names of a staged table's columns, after that of the part."""
        data = len(self.pieces) - self.order - self.deletes
        return [f"c{n}" for n in range(data)] + [f"o{n}" for n in range(self.order)] + ["deleted"] * self.deletes

    @property
    def declared(self) -> list[str]:
        """The columns of a staged table as SQL has them."""
        return [f"{name} {piece.declared}" for name, piece in zip(self.names, self.pieces, strict=True)]

    def source_of(self, name: str | None) -> str | None:
        """The frame's column that a column of a staged table is made of."""
        found = dict(zip(self.names, self.pieces, strict=True)).get(name or "")
        return name if found is None else found.source

    def reasons(self) -> list[str]:
        """What may be wrong with rows: the texts for the numbers in the column `unfit`."""
        return [f"{source}: {reason}" for source, reason, _ in self._conditions()]

    def lines(self, frame: DataFrame) -> DataFrame:
        """The rows as lines of COPY, each with the number of the first thing that is wrong with it, or null."""
        fields = [encoding.field(encoding.text_of(p.value, p.kind, p.type), p.kind) for p in self.pieces]
        ends = [f.lit("\t")] * (len(fields) - 1) + [f.lit("\n")]
        line = f.concat(*(part for pair in zip(fields, ends, strict=True) for part in pair))
        return frame.select(line.alias(LINE), self._unfit(list(range(len(self.reasons()))), "int").alias(UNFIT))

    def rejected(self, frame: DataFrame) -> DataFrame:
        """The rows that are unfit, with the first thing that is wrong with each."""
        return frame.withColumn(ERROR, self._unfit(self.reasons(), "string")).where(f.col(ERROR).isNotNull())

    def _unfit(self, told: Sequence[int | str], kind: str) -> Expression:
        """What is told of the first condition that holds for a row; null if none does."""
        found = [f.when(condition, f.lit(one)) for one, (*_, condition) in zip(told, self._conditions(), strict=True)]
        return f.coalesce(*found, f.lit(None).cast(kind))

    def _conditions(self) -> Iterator[tuple[str, str, Expression]]:
        for piece in self.pieces:
            if piece.null is not None:
                yield piece.source, "null", piece.null
            for reason, condition in encoding.unfit(piece.value, piece.kind, piece.type):
                yield piece.source, reason, condition


def plan(frame: DataFrame, table: Table, options: PostgresOptions, epoch: int) -> Plan:
    """What is staged of a frame that has no faults."""
    by_name = {field.name: field for field in frame.schema.fields}
    written = _written(by_name, options)
    pieces = [_piece(frame, by_name[name], table, options) for name in written]
    if options.epoch_column is not None:
        column = table.columns[options.epoch_column]
        pieces.append(Piece(column.name, f.lit(epoch), t.LongType(), column.type, column.declared))
    for name in options.order_by:
        found = encoding.sortable(by_name[name].dataType)
        assert found is not None
        pieces.append(Piece(name, frame[quoted(name)], by_name[name].dataType, *found))
    if options.delete_when is not None:
        pieces.append(Piece("delete_when", _gone(options), t.BooleanType(), Type("bool"), "boolean NOT NULL"))
    names = [*options.keys, *options.total_columns] if options.mode == "accumulate" else written
    names += [options.epoch_column] if options.epoch_column is not None else []
    columns = tuple((name, table.columns[name].spelled) for name in names)
    checked = all(table.columns[name].is_checked for name in names)
    return Plan(columns, tuple(pieces), len(options.order_by), options.delete_when is not None, checked)


def faults_of(frame: DataFrame, table: Table, options: PostgresOptions) -> list[str]:
    """What makes a frame's columns unfit for the table."""
    by_name = {field.name: field for field in frame.schema.fields}
    written = _written(by_name, options)
    targets = [*written, *(name for name in options.total_columns if name not in written)]
    faults = [f"{name}: the table has no such column" for name in targets if name not in table.columns]
    named = {"keys": options.keys, "order_by": options.order_by, "drop": options.drop}
    faults += [
        f"{name}: {option} names it, and it is not in the frame"
        for option, names in named.items()
        for name in names
        if name not in by_name
    ]
    for name in written:
        if name in table.columns and name in by_name:
            faults += _column_faults(by_name[name], table.columns[name], options.total_columns.get(name))
    faults += _of_totals(by_name, table, options)
    faults += _of_epoch_column(by_name, table, options)
    if options.dead_letters is not None and ERROR in by_name:
        faults.append(f"{ERROR}: dead letters get this column; rename the one of the frame")
    given = {*targets, options.epoch_column}
    faults += [
        f"{column.name}: it is NOT NULL without a default, and not in the frame"
        for column in table.columns.values()
        if column.required and not column.has_default and not column.generated and column.name not in given
    ]
    faults += [
        f"{name}: order_by cannot use {by_name[name].dataType.simpleString()}"
        for name in options.order_by
        if name in by_name and encoding.sortable(by_name[name].dataType) is None
    ]
    faults += [
        f"{name}: its type {table.columns[name].spelled} is in a schema that is not on this user's search_path, so "
        "keys would be compared as text; ALTER ROLE ... SET search_path"
        for name in options.keys
        if name in table.columns and table.columns[name].spelled.endswith(".citext")
    ]
    if options.keys and not any(index.usable and {*index.columns} == {*options.keys} for index in table.unique):
        faults.append(
            f"keys={list(options.keys)!r}: the table needs a primary key or a unique index on exactly these columns, "
            "not deferrable, without a condition"
        )
    return faults


def _written(by_name: dict[str, t.StructField], options: PostgresOptions) -> list[str]:
    """The frame's columns that are staged for columns of the table."""
    if options.mode == "accumulate":
        counted = [name for name, how in options.total_columns.items() if how == "count"]
        return [name for name in (*options.keys, *options.total_columns) if name not in counted]
    return [name for name in by_name if name not in options.drop]


def _piece(frame: DataFrame, field: t.StructField, table: Table, options: PostgresOptions) -> Piece:
    column, how = table.columns[field.name], options.total_columns.get(field.name)
    value = frame[quoted(field.name)]
    if isinstance(field.dataType, t.StringType):
        value = value.cast("string")  # without a collation of Spark's, by which other values may be equal
    if how == "sum":
        kind = _added(field.dataType)
        assert kind is not None
        return Piece(field.name, value, field.dataType, Type(kind), ADDED[kind])
    null = None
    if field.nullable and field.name in options.keys:
        null = value.isNull()
    elif field.nullable and column.required:
        null = value.isNull() & ~_gone(options)  # of a row that is deleted, only the key matters
    return Piece(field.name, value, field.dataType, column.type, column.declared, null)


def _gone(options: PostgresOptions) -> Expression:
    """Whether a row deletes its key."""
    return f.coalesce(f.expr(options.delete_when), f.lit(False)) if options.delete_when is not None else f.lit(False)


def _column_faults(field: t.StructField, column: Column, how: str | None) -> list[str]:
    kind, name = field.dataType, field.name
    if column.generated:
        return [f"{name}: the table generates this column; leave it out of the frame"]
    if how == "sum":
        added = _added(kind)
        good = added is not None and (
            column.type.name in (*encoding.BITS, "numeric") if added == "int8" else column.type.name == added
        )
        scale = column.type.digits[1] if column.type.digits is not None else None
        good = good and (scale is None or (kind.scale if isinstance(kind, t.DecimalType) else 0) <= scale)
    else:
        good = encoding.fits(kind, column.type)
    return [] if good else [f"{name}: {kind.simpleString()} does not fit {column.spelled}; cast it"]


def _of_totals(by_name: dict[str, t.StructField], table: Table, options: PostgresOptions) -> list[str]:
    faults = []
    for name, how in options.total_columns.items():
        if (
            how == "count"
            and name in table.columns
            and table.columns[name].type.name not in (*encoding.BITS, "numeric")
        ):
            faults.append(f"{name}: a count needs a column of whole numbers, not {table.columns[name].spelled}")
        if how != "count" and name not in by_name:
            faults.append(f"{name}: totals names it, and it is not in the frame")
    left = [
        name
        for name in by_name
        if options.mode == "accumulate" and name not in (*options.keys, *options.total_columns, *options.drop)
    ]
    return faults + [f"{name}: neither in keys nor in totals; name it in drop" for name in left]


def _of_epoch_column(by_name: dict[str, t.StructField], table: Table, options: PostgresOptions) -> list[str]:
    name = options.epoch_column
    if name is None:
        return []
    if name in by_name:
        return [f"{name}: epoch_column names it, and it is in the frame"]
    if name not in table.columns:
        return [f"{name}: epoch_column names it, and the table has no such column"]
    good = table.columns[name].type.name == "int8" and not table.columns[name].generated
    return [] if good else [f"{name}: epoch_column needs a bigint column, not {table.columns[name].spelled}"]


def _added(kind: t.DataType) -> str | None:
    """The type in which values of a type are added up; None if they are no numbers."""
    if type(kind) in encoding.INTEGERS:
        return "int8"
    if isinstance(kind, t.DecimalType):
        return "numeric"
    return "float8" if isinstance(kind, t.FloatType | t.DoubleType) else None
