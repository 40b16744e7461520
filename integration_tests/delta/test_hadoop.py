"""A table on a Hadoop file system: Delta's own code does it all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal import DeltaSink
from epochal.txn.model import Outcome
from integration_tests.delta.tables import attempt, engines, ids, numbers, staged, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_epochs_land_once_and_are_remembered(spark: SparkSession, view: str, tmp_path: Path) -> None:
    sink = DeltaSink(f"{view}/table", partition_by=["word"])
    write(sink, 0, numbers(spark, 1, 2))
    handle = staged(sink, attempt(1), numbers(spark, 3))
    before = ids(spark, tmp_path / "table")
    sink.commit(attempt(1), handle)

    assert before == [1, 2]
    assert DeltaSink(f"{view}/table").commit(attempt(1), handle) is Outcome.ALREADY_COMMITTED
    assert ids(spark, tmp_path / "table") == [1, 2, 3]
    assert engines(tmp_path / "table") == ["Delta"] * 3
    assert epochal.epoch_version(f"{view}/table", attempt(1).lineage, 1) == 2
    assert sink.open(attempt(1).lineage).last == 1
    assert list((tmp_path / "table" / "_epochal" / "staged").rglob("*.parquet")) == []
