"""Spark's order of checkpoint files, without Spark.

What matters to the protocol and nothing else: ``metadata`` once, ``offsets/N`` if absent, the
batch, ``commits/N`` if absent (Spark fails the query when another driver was first), then the
progress event.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Generic

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.batches import BatchOutcome, Rows
from epochal.txn.files import Files, join


class ConcurrentUpdate(Exception):
    """commits/N was there: another driver runs this query. Spark ends the query the same way."""


class StandInQuery(Generic[Rows]):
    """One start of a query on a checkpoint."""

    def __init__(self, files: Files, path: str, *, query_id: str | None = None) -> None:
        self._files = files
        self._path = path
        first = json.dumps({"id": query_id or str(uuid.uuid4())}).encode()
        files.create(join(path, "metadata"), first)
        self.checkpoint = SparkCheckpoint(files, path)

    def run(
        self,
        epochs: int,
        rows_of: Callable[[int], Rows],
        batch: Callable[[int, Rows], BatchOutcome],
        progress: Callable[[], None],
    ) -> None:
        """Run the epochs that are not committed yet, up to `epochs` in all."""
        for epoch in range(self.checkpoint.committed() + 1, epochs):
            plan = f'v1\n{{"batchWatermarkMs":0}}\n{{"epoch":{epoch}}}'.encode()
            self._files.create(join(self._path, "offsets", str(epoch)), plan)
            batch(epoch, rows_of(epoch))
            if not self._files.create(join(self._path, "commits", str(epoch)), b"v1\n{}"):
                raise ConcurrentUpdate(f"commits/{epoch}")
            progress()
