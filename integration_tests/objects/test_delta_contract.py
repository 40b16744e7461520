"""The contract of participants, kept by Delta tables on an object store: a sample, and all of it in the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from epochal import DeltaSink
from epochal.testing.contract import ParticipantContract
from epochal.txn.model import Json
from integration_tests.objects import lake
from integration_tests.objects.test_contract import SAMPLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class TablesOnAStore(ParticipantContract[Any]):
    """A plain table with partitions."""

    rounds = 2  # Spark takes its time to stage

    @pytest.fixture(autouse=True, params=["bare"])
    def _each_way(self) -> None:
        """Behind a wrapper the same sink is on local disks: delta/test_contract.py."""

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark_on_s3: SparkSession, folder: str) -> None:
        self.spark, self.path = spark_on_s3, f"{folder}/table"

    def participant(self) -> DeltaSink:
        return DeltaSink(self.path, partition_by=["odd"])

    def rebuilt(self, description: dict[str, Json]) -> DeltaSink:
        return DeltaSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        options = lake.options_of(self.path)
        if not DeltaTable.is_deltatable(self.path, options):
            return []
        rows = DeltaTable(self.path, storage_options=options).to_pyarrow_table().to_pylist()
        return [row["number"] for row in rows]


class TestSample(TablesOnAStore):
    """The claims that an object store could break most easily."""


for _name in dir(TablesOnAStore):
    if _name.startswith("test_") and _name not in SAMPLE:
        setattr(TestSample, _name, None)


@pytest.mark.matrix
class TestTables(TablesOnAStore):
    """All of it."""
