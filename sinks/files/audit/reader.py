"""Reads a target's files, one format at a time, to count and digest what is in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal.sinks.files.formats import digesting, joining
from epochal.sinks.spark import digests
from epochal.sinks.storage.paths import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART = re.compile(r"part-(\d{12})(?:\.\d+\.\d+)?-\d{5}-([^.]+)")
HEADER = "header"


@dataclass
class Reader:
    """Sums up files of one format."""

    spark: SparkSession
    format: str
    headers: Sequence[str]

    def sums(self, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
        """By file, in one job."""
        from pyspark.sql import functions as f
        from pyspark.sql import types as t

        frame: DataFrame
        reader = self.spark.read.options(**joining.STRICT).option("recursiveFileLookup", "true")
        places = [spark_path(path) for path in paths]
        if self.format in digesting.COUNTED:  # no column is needed, and Spark can write schemas that it cannot read
            frame = reader.format(joining.source_of(self.format)).schema(t.StructType()).load(places)
            return digests.by_file(frame, digests.of_values(frame.schema))
        if self.format in digesting.TYPED:
            # All columns that any of them has: of files without one it is null, which changes no digest.
            frame = reader.format(self.format).option("mergeSchema", "true").load(places)
            return digests.by_file(frame, digests.of_values(frame.schema))
        frame = reader.format("text").option("lineSep", "\n").load(places)
        line = frame["value"]
        more = []
        for number, header in enumerate(self._header_lines()):
            more.append(f.sum((line == f.lit(header)).cast("long")).alias(f"{HEADER}{number}"))
            more.append(f.max(digests.line_hash(f.lit(header))).alias(f"{HEADER}{number}_hash"))
        return digests.by_file(frame, digests.of_lines(line), *more)

    def without_headers(self, sums: dict[str, Any]) -> dict[str, Any]:
        """The sums of a file without what it begins with: each known header line once, if it is there."""
        left = dict(sums)
        for number, _ in enumerate(self._header_lines()):
            if left.get(f"{HEADER}{number}"):
                value = int(left[f"{HEADER}{number}_hash"]) % (1 << 64)
                left[digests.ROWS] -= 1
                left[digests.LINES] -= 1
                left[digests.HIGH] -= value >> digests.HALF
                left[digests.LOW] -= value & digests.MASK
        return left

    def _header_lines(self) -> list[str]:
        return [line for header in self.headers for line in header.split("\n")] if self.format == "csv" else []
