"""Where epochal stores its own data in a Delta table's folder.

::

    target/
      _delta_log/                            Delta's
      part-000000000042-00000-LINEAGE-000003-START.snappy.parquet   data files, named by the log
      _epochal/                              VACUUM ignores names with a leading underscore
        lineages/LINEAGE.json                which streams write here, and whose place they took
        staged/LINEAGE/000000000042.000003/  one folder per attempt, removed when the epoch is done
          data/...                           what Spark's writer wrote

A file gets its name in the table's folder just before the log names it. If it were staged there, VACUUM might remove it
while its epoch waits; if it stayed in ``staged``, VACUUM would never remove it after a DELETE. Names identify the
attempt that wrote a file: a repeat arrives at the same names, and no two attempts share one. They contain no data:
partition values are in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from epochal.sinks.spark.names import ending_of_written
from epochal.sinks.storage.register import safe_name
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import below, join
from epochal.txn.model import Attempt

HOME = "_epochal"
DATA = "data"
LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one table."""

    target: str

    @property
    def log(self) -> str:
        return join(self.target, LOG)

    @property
    def lineages(self) -> str:
        return join(self.target, HOME, "lineages")

    def staged(self, lineage: str) -> str:
        return join(self.target, HOME, "staged", safe_name(lineage))

    def attempt(self, attempt: Attempt) -> str:
        return join(self.staged(attempt.lineage), attempt.key)

    def staged_file(self, attempt: Attempt, name: str) -> str:
        """The path of a staged file that a handle names."""
        return below(self.attempt(attempt), name)

    def data_file(self, name: str) -> str:
        """The path of a data file that a handle names."""
        path = below(self.target, name)
        if name.partition("/")[0] in (HOME, LOG):
            raise JournalCorrupt(
                f"a record names a place where no data file belongs: {name!r}. It was changed; restore it from a copy"
            )
        return path


def part_name(attempt: Attempt, part: int, staged_name: str) -> str:
    """A data file's name in the table's folder; the ending comes from what Spark wrote."""
    ending = ending_of_written(staged_name) or ".parquet"
    lineage = safe_name(attempt.lineage)
    start = f"-{attempt.start}" if attempt.start else ""
    return f"part-{attempt.epoch:012d}-{part:05d}-{lineage}-{attempt.generation:06d}{start}{ending}"
