"""Delta's modes on an object store, with Spark: what works, and what is refused by name before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

import epochal
from epochal import DeltaSink, Refused
from epochal.sinks.storage.objects import ObjectFiles
from epochal.testing.contract import claim_for
from epochal.txn.model import Batch
from integration_tests.delta.tables import numbers
from integration_tests.objects.lake import LINEAGE, attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(sink: DeltaSink, epoch: int, rows: DataFrame) -> None:
    if not sink.open(LINEAGE).enrolled:
        claim_for(sink, LINEAGE)
    staged = sink.stage(Batch(attempt=attempt(epoch), rows=rows, offsets=""))
    sink.commit(attempt(epoch), staged.handle)


def ids(spark: SparkSession, table: str, **options: Any) -> list[int]:
    frame = spark.read.format("delta").options(**options).load(table.replace("s3://", "s3a://"))
    return sorted(row.id for row in frame.collect())


def test_complete_replaces_all_rows_and_each_epoch_is_a_version(spark_on_s3: SparkSession, folder: str) -> None:
    table = f"{folder}/lake"
    sink = DeltaSink(table, mode="complete", digest=True)
    for epoch in range(3):
        write(sink, epoch, numbers(spark_on_s3, epoch, epoch + 1))

    assert ids(spark_on_s3, table) == [2, 3]
    version = epochal.epoch_version(table, LINEAGE, 1)
    assert ids(spark_on_s3, table, versionAsOf=version) == [1, 2]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "upsert", "keys": ["id"]}, "mode='upsert' needs Delta's own code"),
        ({"properties": {"delta.enableRowTracking": "true"}}, "only Delta's own code creates a table with these"),
    ],
    ids=["upsert", "row tracking"],
)
def test_what_needs_deltas_own_code_is_refused_before_anything_is_written(
    options: dict[str, Any], why: str, spark_on_s3: SparkSession, files: ObjectFiles, folder: str
) -> None:
    with pytest.raises(Refused, match=f"{why}.*on an object store only delta-rs commits"):
        DeltaSink(f"{folder}/lake", **options).check_frame(numbers(spark_on_s3, 1))

    assert files.names(f"{folder}/lake") == ()


def test_so_is_an_epoch_that_adds_a_column(spark_on_s3: SparkSession, folder: str) -> None:
    sink = DeltaSink(f"{folder}/lake", evolve="add_columns")
    write(sink, 0, numbers(spark_on_s3, 1))
    wider = numbers(spark_on_s3, 2).withColumn("more", f.lit(1))

    with pytest.raises(Refused, match="the epoch adds the column more"):
        sink.check_frame(wider)
    with pytest.raises(Refused, match="the epoch adds the column more"):
        sink.stage(Batch(attempt=attempt(1), rows=wider, offsets=""))
    assert ids(spark_on_s3, f"{folder}/lake") == [1]
