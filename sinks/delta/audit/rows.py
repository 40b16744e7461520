"""A table's rows, read at its versions and digested file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.sinks.delta.stage import digesting
from epochal.sinks.delta.table.jvm import SparkTable
from epochal.sinks.spark import digests
from epochal.txn.audit import Scope
from epochal.txn.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

from epochal.sinks.delta.audit.history import History


@dataclass
class Rows:
    """A table's rows at its versions."""

    table: SparkTable
    history: History
    scope: Scope

    def by_file(self, version: int) -> dict[str, RowDigest]:
        self.scope.progress(f"reading version {version} of the table")
        frame = self.table.at(version)
        partition_by = self.history.state.partition_by
        measure = digesting.measure(frame.schema, self.history.schema_at(version), partition_by)
        return {name: digests.tally(sums) for name, sums in digests.by_file(frame, measure).items()}

    def repeats(self, foreign: set[str], own: set[str]) -> dict[str, tuple[int, int]]:
        """Of files that others have added: how many rows, and how many that are equal to a row of ours."""
        from pyspark.sql import functions as f

        frame = self._hashed()
        theirs = frame.where(frame["file"].isin(sorted(foreign)))
        ours = frame.where(frame["file"].isin(sorted(own))).select(f.col("hash").alias("known")).distinct()
        joined = theirs.join(ours, theirs["hash"] == ours["known"], "left")
        counted = joined.groupBy("file").agg(f.count(f.lit(1)).alias("rows"), f.count("known").alias("same")).collect()
        return {row["file"]: (int(row["rows"]), int(row["same"])) for row in counted}

    def _hashed(self) -> DataFrame:
        frame = self.table.at(self.history.version)
        row = digesting.row_hash(frame.schema, self.history.state.schema, self.history.state.partition_by)
        return frame.select(digests.file_of(frame).alias("file"), row.alias("hash"))
