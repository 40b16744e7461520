"""The contract of participants, kept by Delta tables: committed by delta-rs, by Delta itself, and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from epochal import DeltaSink
from epochal.testing.contract import ConnectContract, ParticipantContract, PastContract, StoreUnderTest
from epochal.txn.model import Json
from epochal.txn.past import HasPast, SinkAt
from integration_tests.behind_a_wrapper import SampledBehindAWrapper
from integration_tests.delta.tables import make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class TablesUnderTest(StoreUnderTest[Any]):
    rounds = 2  # Spark takes its time to stage
    options: dict[str, Any] = {}  # noqa: RUF012  # read only

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark = spark
        self.path = tmp_path / "table"

    def participant(self) -> DeltaSink:
        return DeltaSink(str(self.path), **self.options)

    def rebuilt(self, description: dict[str, Json]) -> DeltaSink:
        return DeltaSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        if not (self.path / "_delta_log").exists():
            return []
        return [row["number"] for row in DeltaTable(self.path).to_pyarrow_table().to_pylist()]


class DeltaContract(SampledBehindAWrapper, TablesUnderTest, ParticipantContract[Any]):
    """A table in a folder of its own."""


class TestTablesAtAnEpoch(TablesUnderTest, PastContract[Any]):
    """Read by time travel."""

    @pytest.fixture(autouse=True, params=["bare", pytest.param("wrapped", marks=pytest.mark.matrix)])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"

    def read(self, past: HasPast, at: SinkAt, pin: Mapping[str, Json]) -> list[int]:
        return [row.number for row in past.read_at(self.spark, at, pin).collect()]


class TestTablesThatAreSent(TablesUnderTest, ConnectContract[Any]):
    """What goes to the process of a Spark Connect server."""

    @pytest.fixture(autouse=True, params=["bare", pytest.param("wrapped", marks=pytest.mark.matrix)])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"


class TestByDeltaRs(DeltaContract):
    """A plain table with partitions."""

    options = {"partition_by": ["odd"]}  # noqa: RUF012  # read only


@pytest.mark.matrix
class TestByDelta(DeltaContract):
    """A table that only Delta's own code may write to."""

    @pytest.fixture(autouse=True)
    def _constrained(self, _empty_store: None) -> None:
        make(self.spark, self.path, "number bigint, odd bigint")
        self.spark.sql(f"ALTER TABLE delta.`{self.path}` ADD CONSTRAINT small CHECK (odd < 2)")


@pytest.mark.matrix
class TestMerged(DeltaContract):
    """A table that is merged into."""

    options = {"mode": "upsert", "keys": ["number"]}  # noqa: RUF012  # read only
