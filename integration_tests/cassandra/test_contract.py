"""The contract of participants, kept by a Cassandra table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import CassandraSink
from epochal.testing.contract import ParticipantContract
from epochal.txn.model import Json
from integration_tests.behind_a_wrapper import SampledBehindAWrapper
from integration_tests.cassandra.tables import Keyspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class TestCassandra(SampledBehindAWrapper, ParticipantContract[Any]):
    rounds = 2  # Spark takes its time to stage
    tables = itertools.count(1)

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, common_space: Keyspace, tmp_path: Path) -> None:
        self.spark, self.space, self.staging = spark, common_space, tmp_path / "staged"
        self.table = common_space.table(f"numbers{next(self.tables)}", "number bigint PRIMARY KEY, odd bigint")

    def participant(self) -> CassandraSink:
        return self.space.sink(self.table, staging=str(self.staging))

    def rebuilt(self, description: dict[str, Json]) -> CassandraSink:
        return CassandraSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        return [row.number for row in self.space.execute(f"SELECT number FROM {self.table}")]
