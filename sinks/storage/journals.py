"""Where a journal may be: wherever a target may be, and on object stores besides.

A journal needs `Files` alone: names that are created once. Targets and checkpoints are written by Spark too, so they
stay on file systems (`hadoop.resolve`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.sinks.storage.hadoop import resolve
from epochal.txn.files import Files, join
from epochal.txn.journal import scratch_beside
from epochal.txn.object_paths import is_object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def resolve_journal(path: str, spark: SparkSession | None = None) -> tuple[Files, str]:
    """The file operations for a journal, and its path in full. An object store is reached without Spark."""
    if is_object_store(path):
        from epochal.sinks.storage.objects import open_files

        return open_files(path)
    return resolve(path, spark)


def scratch_for(journal: str, checkpoint: str) -> str:
    """The folder for stores that have no place for staged files: Spark's executors write there.

    It is beside the journal or, if that is on an object store, where it would be for a journal in the checkpoint.
    """
    return scratch_beside(join(checkpoint, "epochal") if is_object_store(journal) else journal)
