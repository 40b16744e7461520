"""The contract of participants, kept by rolling files on local disks and on a Hadoop file system."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import Rolling, RollingFileSink
from epochal.testing.contract import ConnectContract, ParticipantContract, PastContract, RollsContract
from epochal.txn.model import Json
from epochal.txn.past import HasPast, SinkAt
from integration_tests.spark.checks import visible_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class FilesUnderTest:
    """A target on a local disk, and rows for it."""

    path = ""

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark = spark
        self.folder = tmp_path / "target"
        self.path = str(self.folder)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        lines = [line for file in visible_files(self.folder) for line in file.read_text().splitlines()]
        return [json.loads(line)["number"] for line in lines]


class FilesContract(FilesUnderTest, ParticipantContract[Any]):
    rounds = 3  # Spark takes its time to stage

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="json", bucket_by=["odd"], marker="epoch")

    def rebuilt(self, description: dict[str, Json]) -> RollingFileSink:
        return RollingFileSink.from_description(description)


class TestLocalFiles(FilesContract):
    """On local disks."""


class TestHadoopFiles(FilesContract):
    """Through the JVM. Behind a wrapper the same sink is on local disks, above."""

    @pytest.fixture(autouse=True, params=["bare", pytest.param("wrapped", marks=pytest.mark.matrix)])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"

    @pytest.fixture(autouse=True)
    def _store_in_a_view(self, _empty_store: None, view: str) -> None:
        self.path = f"{view}/target"


class TestFilesAtAnEpoch(FilesUnderTest, PastContract[Any]):
    """Files are read by the manifest, as an earlier epoch left it."""

    @pytest.fixture(autouse=True, params=["bare", pytest.param("wrapped", marks=pytest.mark.matrix)])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="json")

    def read(self, past: HasPast, at: SinkAt, pin: Mapping[str, Json]) -> list[int]:
        return [row.number for row in past.read_at(self.spark, at, pin).collect()]


class TestFilesThatAreSent(FilesUnderTest, ConnectContract[Any]):
    """What goes to the process of a Spark Connect server."""

    @pytest.fixture(autouse=True, params=["bare", pytest.param("wrapped", marks=pytest.mark.matrix)])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="json")


class TestRollingFiles(FilesUnderTest, RollsContract[Any]):
    """Parts that stay open, in a format that is joined byte by byte."""

    def participant(self) -> RollingFileSink:
        rolling = Rolling(max_rows=1000)
        return RollingFileSink(self.path, format="json", bucket_by=["odd"], rolling=rolling)


class TestRollingColumns(FilesUnderTest, RollsContract[Any]):
    """Parts that stay open, in a format that is merged."""

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="parquet", rolling=Rolling(max_rows=1000))

    def visible(self) -> list[int]:
        files = [str(file) for file in visible_files(self.folder)]
        return [row.number for row in self.spark.read.parquet(*files).collect()] if files else []
