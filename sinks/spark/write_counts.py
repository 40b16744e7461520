"""The rows, files and bytes that Spark reports of a write, to compare them with the files that the driver sees.

Each task of a write counts its rows, and measures each of its files on its own machine when it has closed it. A file
that the driver does not see, or sees with another length, is on another machine's disk or was removed. Without this
comparison its rows would be lost unnoticed.

A Spark Connect server reports rows only (`DataFrame.observe`). There the rows in the files must be counted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal.sinks.spark import staging
from epochal.sinks.spark.sessions import set_for
from epochal.sinks.storage import java_code
from epochal.sinks.storage.connect import is_connect
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

TIMEOUT = 300  # seconds for Spark's event of a write that is over; it takes milliseconds
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """The files of a write, their bytes together, and the rows in them."""

    rows: int
    files: int = 0
    bytes: int = 0
    measured: bool = True  # else files and bytes are not known, and the rows in the files must be counted

    def fits(self, lengths: Iterable[int]) -> bool:
        """Whether files of these lengths may be what was written. Without rows it does not matter what there is."""
        if not self.measured:
            return True
        found = list(lengths)
        return self.rows == 0 or (len(found), sum(found)) == (self.files, self.bytes)


@dataclass(frozen=True, slots=True)
class Written:
    """What a write has come to: Spark's counts, and the sums that were taken of the rows on their way."""

    counts: WriteCounts
    sums: dict[str, Any] = field(default_factory=dict)


def written(
    frame: DataFrame, folder: str, save: Callable[[DataFrame], None], sums: Sequence[Column] | None = None
) -> Written:
    """Let Spark's writer of files write a frame to a folder, with these aggregates of its rows taken in the same job.

    One of the aggregates, if there are any, must be the number of rows, as `ROWS`.
    """
    spark = frame.sparkSession
    if is_connect(spark):
        return _observed(frame, save, sums)
    counter = None
    if sums is not None:
        counter, frame = _watched(frame, sums)
    with set_for(spark, staging.settings_for(spark, folder)):
        counts = _counted(spark, folder, lambda: save(frame))
    return Written(counts, {} if counter is None else dict(counter.get))


def _observed(frame: DataFrame, save: Callable[[DataFrame], None], sums: Sequence[Column] | None) -> Written:
    """A write without a listener. Where Spark plans no rows at all it reports nothing: then there are none."""
    from pyspark.sql import functions as f

    counter, frame = _watched(frame, sums or [f.count(f.lit(1)).alias(ROWS)])
    save(frame)
    found = dict(counter.get)
    return Written(WriteCounts(int(found.get(ROWS) or 0), measured=False), {} if sums is None else found)


def _watched(frame: DataFrame, sums: Sequence[Column]) -> tuple[Observation, DataFrame]:
    from pyspark.sql import Observation

    counter = Observation()
    return counter, frame.observe(counter, *sums)


def _counted(spark: SparkSession, folder: str, write: Callable[[], None]) -> WriteCounts:
    listener = java_code.new(spark, "epochal.sinks.spark", "WriteListener")
    listener.listen(spark._jsparkSession, folder)
    try:
        write()
        report = listener.take(TIMEOUT)
        if report is None:
            raise Refused(
                f"Spark has written to {folder} and not reported within {TIMEOUT} s how many rows and files; the last "
                f"write that it reported was {str(listener.seen()) or 'none'}. Its listeners are too slow, or a plugin "
                "has replaced its file writer. Nothing of the epoch was published"
            )
    finally:
        listener.stop()
    files, length, rows = (int(number) for number in str(report).split(" "))
    return WriteCounts(rows, files, length)
