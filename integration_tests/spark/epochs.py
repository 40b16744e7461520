"""Published epochs without a stream: what a sink's stage and commit leave, in a second instead of a minute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import epochal
from epochal.txn.model import Attempt, Batch, Staged
from integration_tests.spark.world import SCHEMA, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.txn.participant import Participant

LINEAGE = "1f0c9a2e-0000-4000-8000-000000000000"


def stage_frame(sink: Participant[DataFrame], attempt: Attempt, frame: DataFrame) -> Staged:
    """One attempt of a stream that has nothing open."""
    return sink.stage(Batch(attempt=attempt, rows=frame, offsets="digest"))


def publish_frame(sink: epochal.RollingFileSink, epoch: int, frame: DataFrame) -> None:
    """One epoch with any rows."""
    attempt = Attempt(LINEAGE, epoch, 1)
    staged = stage_frame(sink, attempt, frame)
    sink.commit(attempt, staged.handle)


def publish_epochs(spark: SparkSession, sink: epochal.RollingFileSink, epochs: Iterable[int]) -> None:
    """Epochs with the rows of as many files of a world's source."""
    for epoch in epochs:
        publish_frame(sink, epoch, spark.createDataFrame(rows_of(epoch), SCHEMA).coalesce(1))
