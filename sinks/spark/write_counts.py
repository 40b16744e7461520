"""The rows, files and bytes that Spark reports of a write, to compare them with the files that the driver sees.

Each task of a write counts its rows, and measures each of its files on its own machine when it has closed it. A file
that the driver does not see, or sees with another length, is on another machine's disk or was removed. Without this
comparison its rows would be lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.sinks.storage import java_code
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT = 300  # seconds for Spark's event of a write that is over; it takes milliseconds


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """The files of a write, their bytes together, and the rows in them."""

    files: int
    bytes: int
    rows: int

    def fits(self, lengths: Iterable[int]) -> bool:
        """Whether files of these lengths are what was written. Without rows it does not matter what there is."""
        found = list(lengths)
        return self.rows == 0 or (len(found), sum(found)) == (self.files, self.bytes)


def counted(spark: SparkSession, folder: str, write: Callable[[], None]) -> WriteCounts:
    """Let Spark's writer of files write to a folder; what it says that it wrote."""
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
    return WriteCounts(files, length, rows)
