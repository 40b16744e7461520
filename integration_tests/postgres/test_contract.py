"""The contract of participants, kept by PostgreSQL tables: rows in one piece, rows in a staged table, and each mode."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from epochal import PostgresSink
from epochal.participant import Json
from epochal.testing.contract import ParticipantContract
from integration_tests.behind_a_wrapper import SampledBehindAWrapper
from integration_tests.postgres.tables import Space

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class TestPostgres(SampledBehindAWrapper, ParticipantContract[Any]):
    """Small epochs that are appended."""

    rounds = 2  # Spark takes its time to stage
    tables = itertools.count(1)
    columns = "number bigint, odd bigint"
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EPOCHAL_POSTGRES_USER", space.server.user)  # which no journal has
        self.spark, self.space = spark, space
        self.table = space.table(f"numbers{next(self.tables)}", self.columns)

    def participant(self) -> PostgresSink:
        return self.space.sink(self.table, **self.options)

    def rebuilt(self, description: dict[str, Json]) -> PostgresSink:
        return PostgresSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        return [number for (number,) in self.space.execute(f"SELECT number FROM {self.table}")]


@pytest.mark.matrix
class TestStagedTable(TestPostgres):
    """Epochs that are staged in a table of their own."""

    columns = "number bigint, odd bigint, epoch bigint"
    options: ClassVar[dict[str, Any]] = {"epoch_column": "epoch", "digest": True}


@pytest.mark.matrix
class TestUpsert(TestPostgres):
    columns = "number bigint PRIMARY KEY, odd bigint"
    options: ClassVar[dict[str, Any]] = {"mode": "upsert", "keys": ["number"]}


@pytest.mark.matrix
class TestAccumulate(TestPostgres):
    columns = "number bigint PRIMARY KEY, odd numeric"
    options: ClassVar[dict[str, Any]] = {"mode": "accumulate", "keys": ["number"], "totals": {"odd": "sum"}}

    def visible(self) -> list[int]:
        return [n for (n,) in self.space.execute(f"SELECT number FROM {self.table}")]
