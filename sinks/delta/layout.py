"""Where everything of epochal lies in a Delta table's folder.

::

    target/
      _delta_log/                            Delta's
      part-000000000042-00000-LINEAGE-000003-START.snappy.parquet   data files, named by the log
      _epochal/                              VACUUM passes over names with a leading underscore
        lineages/LINEAGE.json                who writes here, and whose place they took
        staged/LINEAGE/000000000042.000003/  one folder an attempt, gone when the epoch is done
          data/...                           what Spark's writer wrote

A file gets its name beside the others just before the log names it: staged there from the start it
might be removed by VACUUM while its epoch waits, and left in ``staged`` it never would be, after a
DELETE. Names say which attempt made a file, so that a repeat arrives at the same, and no two attempts do; they hold
nothing of the data: partition values are in the log.
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
        """What a handle names as staged."""
        return below(self.attempt(attempt), name)

    def data_file(self, name: str) -> str:
        """What a handle names as a data file of the table."""
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
