"""The first phase: an epoch's rows are checked, encoded and written to files, and the epoch gets its timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.cassandra.stage import frames
from epochal.sinks.cassandra.stage.rows import ERROR, RowFormat
from epochal.sinks.cassandra.table import Table
from epochal.sinks.spark import staged_files, write_counts
from epochal.sinks.spark.reasons import as_bad_rows
from epochal.sinks.spark.sessions import parallelism
from epochal.sinks.spark.values import quoted
from epochal.sinks.storage.paths import spark_path
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import Files

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

LIMITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}  # bits of whole numbers
# What an epoch adds to a total. If it is no more than this, totals are not read while it is staged: those of larger
# epochs were, and half of a column's range was left for some 2^30 small ones.
SMALL = 1 << 32


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The files of an epoch, and what its handle says about them."""

    files: tuple[tuple[str, int, int], ...]  # name, bytes, rows
    received: int  # rows that the epoch was given, rejected ones included
    has_large_sums: bool  # whether an epoch's sum is larger than `SMALL`


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages epochs in one format of rows."""

    options: CassandraOptions
    table: Table
    row_format: RowFormat
    expiry: int | None  # seconds since 1970, for rows without a time of their own

    @property
    def limits(self) -> dict[str, int]:
        """The bits of each column of whole numbers."""
        return {name: LIMITS[kind.name] for name, kind in self.row_format.kinds.items() if kind.name in LIMITS}

    def write(self, rows: DataFrame, files: Files, folder: str) -> StagedRows:
        """Let Spark write the staged files."""
        from pyspark.errors import PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counter, extremes = Observation(), Observation()
        summed = [name for name, how in self.options.total_columns.items() if how == "sum" and name in self.limits]
        place = spark_path(folder)
        failpoints.hit("before-write")
        try:
            frame = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
            if self.options.dead_letters is not None:
                frame = self.accepted(frame)
            if self.row_format.accumulates:
                frame = frames.totalled(frame, self.table.key, self.options.total_columns)
            if summed:
                frame = frame.observe(extremes, *frames.extremes(summed))
            encoded = frames.encoded(self._sorted(frame), self.row_format)
            wrote = write_counts.written(encoded, place, lambda watched: staged_files.save(watched, place)).counts
        except PySparkException as fault:
            if (known := self._translated(fault)) is None:
                raise
            raise known from fault
        failpoints.hit("after-write")
        listed = staged_files.staged_in(files, folder) if wrote.rows or not wrote.measured else {}
        complete = wrote.fits(listed.values())
        staged = staged_files.with_row_counts(rows.sparkSession, folder, listed) if complete else ()
        if not complete or wrote.rows != sum(count for _, _, count in staged):
            raise staged_files.not_all_there(self.options.name, folder)
        has_large_sums = bool(summed) and max(abs(value or 0) for value in extremes.get.values()) > SMALL
        return StagedRows(staged, int(counter.get.get("rows", 0)), has_large_sums)

    def epoch(self, staged: StagedRows, stamp: int, offsets: str) -> StagedEpoch:
        """What the handle of an epoch says."""
        options, row_format, table = self.options, self.row_format, self.table
        written = [*row_format.kinds, *([options.mark] if row_format.accumulates else [])]
        return StagedEpoch(
            table=options.table,
            mode=options.mode,
            columns=tuple(row_format.kinds),
            key=table.key,
            files=staged.files,
            stamp=stamp,
            expiry=self.expiry,
            expires=row_format.expires,
            whole=set(row_format.kinds) == set(table.columns) and options.nulls == "tombstone",
            totals=options.total_columns,
            limits=self.limits,
            mark=options.mark,
            offsets=offsets,
            identity=table.identity,
            types={name: str(table.columns[name]) for name in written},
        )

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that the table cannot hold, with the reason for each."""
        checked = self._with_errors(rows)
        return checked.where(checked[ERROR].isNotNull()).select(*map(quoted, rows.columns), ERROR)

    def accepted(self, rows: DataFrame) -> DataFrame:
        """The rows that the table can hold."""
        checked = self._with_errors(rows)
        return checked.where(checked[ERROR].isNull()).select(*map(quoted, rows.columns))

    def _with_errors(self, rows: DataFrame) -> DataFrame:
        return frames.with_errors(self._sorted(rows), self.row_format)

    def _sorted(self, rows: DataFrame) -> DataFrame:
        tasks = self.options.tuning.tasks or parallelism(rows.sparkSession)
        return frames.by_key(frames.with_helper_columns(rows, self.options), self.row_format, tasks)

    def _translated(self, fault: PySparkException) -> Exception | None:
        """The error that a failed job means to the user; None if it is not about the rows or the setup."""
        if "No module named 'epochal" in str(fault):
            return Refused(
                f"sink {self.options.name!r}: the executors' Python has no epochal. Nothing was written. Install "
                "epochal[cassandra] there, or name the interpreter that has it: PYSPARK_PYTHON"
            )
        return as_bad_rows(self.options.name, fault)
