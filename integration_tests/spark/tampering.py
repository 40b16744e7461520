"""Staged files of a real epoch that another program changes before it is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.sinks.storage.targets import resolve_target
from epochal.txn.errors import DataLost
from epochal.txn.files import join
from epochal.txn.model import Attempt, Handle, Outcome
from integration_tests.spark.epochs import LINEAGE, stage_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPT = Attempt(LINEAGE, 0, 1)


class Tampered:
    """An epoch that is staged in a target; `write` puts other content under a staged file's path."""

    def __init__(self, target: str, spark: SparkSession, write: Callable[[str, bytes], object]) -> None:
        sink = epochal.RollingFileSink(target, format="json")
        rows = spark.range(0, 30, numPartitions=3).selectExpr("id", "string(id) AS word")
        self.target, self._write = target, write
        self.files, _ = resolve_target(target)
        self.handle: Handle = stage_frame(sink, ATTEMPT, rows).handle
        staged = [entry.name for entry in self.files.walk(target) if "/data/part-" in entry.name]
        self.path = join(target, sorted(staged)[1])
        self.content = self.files.read(self.path)

    def commit(self) -> Outcome:
        """As a new process does."""
        return epochal.RollingFileSink(self.target, format="json").commit(ATTEMPT, self.handle)

    def put_back(self) -> None:
        self._write(self.path, self.content)

    def check_that_changed_rows_are_not_published(self) -> None:
        for data, told in (
            (self.content[:-9], f"should have {len(self.content)} bytes and has {len(self.content) - 9}"),
            (self.content.replace(b"1", b"7"), "was written again after it was staged"),
        ):
            self._write(self.path, data)
            with pytest.raises(DataLost, match=told):
                self.commit()
            assert self.files.names(self.target) == ("_epochal",)

    def check_that_all_is_published(self) -> None:
        (shown,) = epochal.published(self.target)
        assert (shown.rows, len(shown.files)) == (30, 3)
