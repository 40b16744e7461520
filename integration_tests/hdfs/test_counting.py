"""How many rows an epoch has on HDFS: as Spark's tasks counted them; of each file by its footer, if a policy asks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal.sinks.files.formats.columnar import Columnar
from epochal.sinks.files.options import Format
from epochal.sinks.storage.hadoop import resolve
from epochal.txn.files import join
from epochal.txn.model import Attempt, Batch
from epochal.txn.state.versions import SinkState
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.epochs import LINEAGE, publish_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("format_", ["parquet", "orc", "json"])
def test_rows_are_told_right_however_many_files_an_epoch_has(
    spark: SparkSession, remote: Remote, format_: Format
) -> None:
    sink = epochal.RollingFileSink(f"{remote.uri}/first", format=format_)
    shapes = [(7, 1), (30, 3), (0, 1), (40, 10), (60, 2)]
    for epoch, (count, files) in enumerate(shapes):
        publish_frame(sink, epoch, spark.range(0, count, numPartitions=files).selectExpr("id", "string(id) AS word"))
    found = epochal.published(f"{remote.uri}/first")

    assert [epoch.rows for epoch in found] == [count for count, _ in shapes]
    assert [len(epoch.files) for epoch in found] == [files if count else 0 for count, files in shapes]
    assert sum(spark.read.format(format_).load(f"{remote.uri}/first").groupBy().count().first() or ()) == 137


def test_a_file_that_is_gone_refuses_the_epoch(
    spark: SparkSession, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"{remote.uri}/first"
    sink = epochal.RollingFileSink(target, format="json")
    files, _ = resolve(target)

    def lose(name: str) -> None:
        if name == "after-write":
            staged = [entry.name for entry in files.walk(target) if "/part-" in entry.name]
            files.delete(join(target, staged[0]))

    monkeypatch.setattr("epochal.txn.failpoints.hit", lose)

    with pytest.raises(epochal.Refused, match="not all of them"):
        publish_frame(sink, 0, spark.range(0, 30, numPartitions=3))


def test_a_footer_that_only_spark_can_read_is_read_by_a_job(
    spark: SparkSession, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def encrypted(self: Columnar, kind: str, paths: Sequence[str]) -> list[int]:
        looks.extend(paths)
        raise OSError(f"{paths[0]} has no footer of Parquet's that can be read")

    monkeypatch.setattr(Columnar, "rows", encrypted)
    sink = epochal.RollingFileSink(f"{remote.uri}/first", rolling=epochal.Rolling(max_rows=4))
    publish_frame(sink, 0, spark.range(0, 8, numPartitions=2))
    (found,) = epochal.published(f"{remote.uri}/first")

    assert len(looks) == 2
    assert (found.rows, len(found.files)) == (8, 2)


def test_an_epoch_that_opens_and_closes_more_parts_sends_no_more_messages(spark: SparkSession, remote: Remote) -> None:
    sent = {parts: messages_of_an_epoch(spark, f"{remote.uri}/{parts}", parts) for parts in (3, 12)}

    assert sent[3] == sent[12]
    assert sent[12]["each lines"] == 1
    assert sent[12]["list"] == 2  # what Spark has written, and the pieces that it closes


def messages_of_an_epoch(spark: SparkSession, target: str, parts: int) -> Counter[str]:
    """What the sink asks the JVM while an epoch closes so many parts and opens as many."""
    sent: Counter[str] = Counter()

    class Counting:
        def __init__(self, calls: Any) -> None:
            self._calls = calls

        def __getattr__(self, name: str) -> Any:
            def call(*args: Any) -> Any:
                sent[f"{name} {args[0]}" if name == "each" else name] += 1
                return getattr(self._calls, name)(*args)

            return call

    rolling = epochal.Rolling(max_rows=2)
    sink = epochal.RollingFileSink(target, format="json", bucket_by=["bucket"], rolling=rolling)
    files: Any = sink._place()[0]
    files.calls = Counting(files.calls)
    state = SinkState()
    for epoch, rows in enumerate([parts, 2 * parts]):
        sent.clear()
        frame = spark.range(0, rows, numPartitions=1).selectExpr("id", "id AS bucket")
        attempt = Attempt(LINEAGE, epoch, 1)
        staged = sink.stage(Batch(attempt=attempt, rows=frame, offsets="digest", state=state))
        sink.commit(attempt, staged.handle)
        state = state.then((epoch, 0), staged.changes)
    (_, found) = epochal.published(target)

    assert (len(found.files), sink.open_size(state)[0]) == (parts, parts)
    return sent
