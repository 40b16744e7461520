"""The contract of participants, kept by rolling files on local disks and on a Hadoop file system."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import RollingFileSink
from epochal.sinks.files import from_description
from epochal.testing.contract import ParticipantContract
from epochal.txn.model import Json
from integration_tests.spark.checks import visible_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class FilesContract(ParticipantContract[Any]):
    rounds = 3  # Spark takes its time to stage
    path = ""

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark = spark
        self.folder = tmp_path / "target"
        self.path = str(self.folder)

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="json", bucket_by=["odd"], marker="epoch")

    def rebuilt(self, description: dict[str, Json]) -> RollingFileSink:
        return from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        lines = [line for file in visible_files(self.folder) for line in file.read_text().splitlines()]
        return [json.loads(line)["number"] for line in lines]


class TestLocalFiles(FilesContract):
    """On local disks."""


class TestHadoopFiles(FilesContract):
    """Through the JVM."""

    @pytest.fixture(autouse=True)
    def _store_in_a_view(self, _empty_store: None, view: str) -> None:
        self.path = f"{view}/target"
