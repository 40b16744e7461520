"""The clock of an operator is that of the epoch's plan: a replay has the same, so a TTL is exact too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import epochal
from integration_tests.examples import settings_restored
from integration_tests.operators.reference import rows_in
from integration_tests.spark.checks import committed
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.world import ROWS, WORDS, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# With them Spark plans epoch after epoch, and a query in this time mode never ends.
EMPTY_EPOCHS = "spark.sql.streaming.noDataMicroBatches.enabled"
SHORT, LONG = 1, 3_600_000  # milliseconds


class Clock(StatefulProcessor):
    """For each word: how many rows, counted in a state that lives long, and in one that does not."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.long = handle.getValueState("long", "n long", LONG)
        self.short = handle.getMapState("short", "at long", "n long", SHORT)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        n = sum(1 for _ in rows)
        (before,) = self.long.get() or (0,)
        lately = sum(n for (n,) in self.short.values())
        now = timerValues.getCurrentProcessingTimeInMs()
        self.long.update((before + n,))
        self.short.updateValue((now,), (n,))
        yield Row(word=key[0], before=before, lately=lately, now=now)


def test_a_ttl_counts_the_time_of_the_plan_also_when_an_epoch_is_replayed(spark: SparkSession, world: World) -> None:
    world.feed(3)
    failed: list[int] = []

    def fail_once(rows: DataFrame, epoch: int) -> None:
        writer(rows, epoch)
        if epoch == 1 and not failed:
            failed.append(epoch)
            raise RuntimeError("after PREPARED")

    with settings_restored(spark):
        for name, value in {**epochal.rocksdb_settings(), EMPTY_EPOCHS: "false"}.items():
            spark.conf.set(name, value)
        writer = epochal.EpochWriter(epochal.RollingFileSink(str(world.first), format="json"))
        schema = "word string, before long, lately long, now long"
        clock = stream(spark, world).groupBy("word").transformWithState(Clock(), schema, "Append", "ProcessingTime")
        with pytest.raises(StreamingQueryException):
            to_checkpoint(clock, world).foreachBatch(fail_once).start().awaitTermination()
        to_checkpoint(clock, world).foreachBatch(fail_once).start().awaitTermination()
        writer.settle()

    planned = [json.loads((world.checkpoint / "offsets" / str(n)).read_text().splitlines()[1]) for n in range(3)]
    each = ROWS // len(WORDS)
    expected = [(word, each * n, 0, planned[n]["batchTimestampMs"]) for n in range(3) for word in WORDS]
    found = [(row["word"], row["before"], row["lately"], row["now"]) for row in rows_in(world.first)]
    assert failed == [1]
    assert sorted(found) == sorted(expected)
    assert committed(world) == {0, 1, 2}
