"""How many rows an epoch has on HDFS: by the footers of its files where they are few, else counted on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.sinks.files.columnar import Columnar
from epochal.sinks.files.writing import VERY_FEW
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.epochs import publish_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MANY = VERY_FEW + 2


@pytest.mark.parametrize("format_", ["parquet", "orc", "json"])
def test_rows_are_told_right_however_many_files_an_epoch_has(
    spark: SparkSession, remote: Remote, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    looks: list[int] = []
    read = Columnar.rows

    def rows(self: Columnar, kind: str, paths: Sequence[str]) -> list[int]:
        looks.append(len(paths))
        return read(self, kind, paths)

    monkeypatch.setattr(Columnar, "rows", rows)
    sink = epochal.RollingFileSink(f"{remote.uri}/first", format=format_)
    shapes = [(7, 1), (30, 3), (0, 1), (40, MANY), (50, 2), (60, 2)]
    for epoch, (count, files) in enumerate(shapes):
        publish_frame(sink, epoch, spark.range(0, count, numPartitions=files).selectExpr("id", "string(id) AS word"))
    found = epochal.published(f"{remote.uri}/first")

    assert [epoch.rows for epoch in found] == [count for count, _ in shapes]
    assert [len(epoch.files) for epoch in found] == [files if count else 0 for count, files in shapes]
    assert sum(spark.read.format(format_).load(f"{remote.uri}/first").groupBy().count().first() or ()) == 187
    # The first epoch is counted on the way, and so is the one after that with many files.
    assert looks == ([3, 1, MANY, 2] if format_ != "json" else [])


def test_a_footer_that_only_spark_can_read_is_read_by_a_job(
    spark: SparkSession, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encrypted(self: Columnar, kind: str, paths: Sequence[str]) -> list[int]:
        raise OSError(f"{paths[0]} has no footer of Parquet's that can be read")

    monkeypatch.setattr(Columnar, "rows", encrypted)
    sink = epochal.RollingFileSink(f"{remote.uri}/first")
    for epoch in range(3):
        publish_frame(sink, epoch, spark.range(5 + epoch))

    assert [epoch.rows for epoch in epochal.published(f"{remote.uri}/first")] == [5, 6, 7]
