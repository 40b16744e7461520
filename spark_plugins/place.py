"""Where a query has its checkpoint: its file system and its path in full, resolved once for a whole start."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import NewCheckpoint, SparkCheckpoint
from epochal.spark_plugins.restore_marks import refuse_unfinished_restore
from epochal.spark_plugins.store_checkpoints import check_manager, resolve_checkpoint
from epochal.txn.files import Files, join
from epochal.txn.object_paths import one_spelling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointPlace:
    """The location that the user or Spark gave. It is resolved when first asked for: that may be refused."""

    def __init__(self, location: str, spark: SparkSession) -> None:
        self.location, self._spark = location, spark

    @property
    def files(self) -> Files:
        return self._resolved[0]

    @property
    def path(self) -> str:
        return self._resolved[1]

    @property
    def is_new(self) -> bool:
        """Whether Spark has yet to create the checkpoint. Looked up each time."""
        return is_new(self.files, self.path)

    @property
    def checkpoint(self) -> SparkCheckpoint:
        return SparkCheckpoint(self.files, self.path)

    def is_at(self, root: str) -> bool:
        """Whether this is the root that Spark says a query's checkpoint has."""
        return one_spelling(root) == one_spelling(spark_path(self.path))

    @cached_property
    def _resolved(self) -> tuple[Files, str]:
        check_manager(self.location, self._spark)
        files, path = resolve_checkpoint(self.location, self._spark)
        refuse_unfinished_restore(files, path)
        return files, path


def checkpoint_at(files: Files, path: str) -> SparkCheckpoint:
    """An existing or a new checkpoint."""
    return NewCheckpoint(files, path) if is_new(files, path) else SparkCheckpoint(files, path)


def is_new(files: Files, path: str) -> bool:
    """Whether Spark has yet to create a checkpoint."""
    return files.length(join(path, "metadata")) is None
