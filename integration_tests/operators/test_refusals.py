"""What an operator of the user's own lacks is refused before Spark plans an epoch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from examples import fraud
from integration_tests.examples import settings_restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_without_rocksdb_or_protobuf_nothing_is_started_and_the_error_says_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fraud.put_sample_payments(tmp_path / "incoming", 1)
    writer, stream = fraud.build(spark, str(tmp_path / "incoming"), str(tmp_path / "checkpoint"), str(tmp_path))
    monkeypatch.setitem(sys.modules, "google.protobuf.runtime_version", None)

    with pytest.raises(epochal.Refused) as refused:
        writer.start(stream)
    assert "conf=epochal.rocksdb_settings()" in str(refused.value)
    assert "pip install 'epochal[state]'" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["incoming"]


def test_a_checkpoint_that_began_without_rocksdb_is_refused_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    counted = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().groupBy("value").count()
    started = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = started.trigger(once=True).start()
    query.awaitTermination()
    fraud.put_sample_payments(tmp_path / "incoming", 1)

    with settings_restored(spark):
        for name, value in epochal.rocksdb_settings().items():
            spark.conf.set(name, value)
        writer, stream = fraud.build(spark, str(tmp_path / "incoming"), str(checkpoint), str(tmp_path))
        with pytest.raises(epochal.Refused, match="Give the query a new checkpoint"):
            writer.start(stream)
