"""The sink keeps the contract of participants. `pytest` runs this with Spark on one core."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from epochal_sqlite import SqliteSink

import epochal
from epochal.participant import BadRows, Batch, Json
from epochal.testing.contract import FIRST, ConnectContract, ParticipantContract, StoreUnderTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "number long, word string"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests."""
    session = epochal.session("contract", master="local[1]")
    yield session
    session.stop()


class SqliteSinkUnderTest(StoreUnderTest["DataFrame"]):
    """An empty table for each test."""

    rounds = 3

    @pytest.fixture(autouse=True)
    def _empty_table(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark = spark
        self.path = tmp_path / "shop.db"
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("CREATE TABLE orders (number INTEGER NOT NULL, word TEXT)")

    def participant(self) -> SqliteSink:
        return SqliteSink(str(self.path), table="orders")

    def rebuilt(self, description: dict[str, Json]) -> SqliteSink:
        return SqliteSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        rows = ", ".join(f"({number}L, 'word')" for number in numbers)
        return self.spark.sql(f"SELECT * FROM VALUES {rows or '(0L, NULL)'} AS t(number, word) WHERE {bool(rows)}")

    def visible(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as db:
            return [number for (number,) in db.execute("SELECT number FROM orders")]


class SqliteSinkContract(SqliteSinkUnderTest, ParticipantContract["DataFrame"]):
    """What every sink promises."""


class TestSqliteSinkOnConnect(SqliteSinkUnderTest, ConnectContract["DataFrame"]):
    """It goes to the process of a Spark Connect server."""


class TestSqliteSink(SqliteSinkContract):
    """What the contract does not know: this store's own rules."""

    def test_a_row_that_the_table_refuses_is_refused_before_the_epoch_is_decided(self) -> None:
        rows = self.spark.sql("SELECT CAST(NULL AS LONG) AS number, 'word' AS word")

        with pytest.raises(BadRows, match="NOT NULL constraint failed"):
            self._enrolled().stage(Batch(attempt=FIRST, rows=rows, offsets=""))
        assert self._made().leftovers(FIRST.lineage) == []

    def test_all_that_is_wrong_with_a_frame_is_reported_before_the_query_starts(self) -> None:
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("CREATE UNIQUE INDEX one_word ON orders (word)")
        frame = self.spark.sql("SELECT DATE'2026-11-16' AS day, 1L AS number")

        assert self._made().check_frame(frame) == [
            "day: the table has no such column",
            "word: the frame lacks this column of the table",
            "day: cast date to string",
            "one_word: drop this constraint; the sink appends",
        ]
