"""The stream that every benchmark runs: a number of epochs with a number of rows each, from files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SHAPES = {"small": (20, 50_000), "large": (3, 2_000_000)}
SCHEMA = "id long, s string, d double, p int"


class SourceStream:
    """A source with one file an epoch, and runs from it into an empty target.

    The first stream writes the source; others with the same home share it, also in other processes.
    """

    def __init__(self, spark: SparkSession, home: Path, epochs: int, rows: int) -> None:
        self._spark, self._home, self._epochs, self._rows = spark, home, epochs, rows
        self.place = home / "run"  # target and checkpoint of the last run
        self.source = home / f"source-{epochs}x{rows}"
        if not self.source.exists():
            self._make_source()

    def run(
        self,
        work: Callable[[Path, DataStreamWriter], None],
        form: str = "parquet",
        distinct: int = 0,
        count: Callable[[], int] | None = None,
        query: Callable[[DataFrame], DataFrame] | None = None,
    ) -> float:
        """The seconds until the last row is visible. Exits if rows are missing."""
        place = self.place
        writer = self.writer(place, query)
        seconds = timed(lambda: work(place / "target", writer))
        self.check(place, count() if count else self.rows(place, form), distinct)
        return seconds

    def writer(self, place: Path, query: Callable[[DataFrame], DataFrame] | None = None) -> DataStreamWriter:
        """A query that reads the source once, with its checkpoint in an empty place."""
        shutil.rmtree(place, ignore_errors=True)
        stream = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        frame = stream.parquet(str(self.source / "*"))
        writer = (query(frame) if query else frame).writeStream
        return writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)

    def rows(self, place: Path, form: str = "parquet") -> int:
        """How many rows the target in a place has."""
        return self._spark.read.format(form).load(str(place / "target")).count()

    def check(self, place: Path, found: int, distinct: int = 0) -> None:
        """Exit if rows are missing."""
        expected = distinct or self._epochs * self._rows
        if found != expected:
            raise SystemExit(f"{place.name}: {found} rows instead of {expected}: the output is wrong: no result")

    def _make_source(self) -> None:
        for epoch in range(self._epochs):
            start = epoch * self._rows
            frame = self._spark.range(start, start + self._rows, numPartitions=1)
            columns = ("id", "concat('customer-', id % 9973) s", "double(id) / 4 d", "int(id % 10) p")
            frame.selectExpr(*columns).write.parquet(str(self.source / f"{epoch:06d}"))
