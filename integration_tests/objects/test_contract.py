"""The contract of participants, kept by rolling files on an object store: a sample, and all of it in the matrix."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import Rolling, RollingFileSink
from epochal.testing.contract import ParticipantContract, RollsContract
from epochal.testing.servers import S3Store
from epochal.txn.model import Json
from integration_tests.objects.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SAMPLE = (
    "test_staged_rows_are_invisible",
    "test_commit_repeated_shows_the_rows_once_and_says_so",
    "test_a_new_process_commits_with_the_description_and_the_handle_as_json",
    "test_staged_data_that_is_lost_is_an_error_and_not_a_commit",
    "test_two_processes_that_commit_the_same_handle_show_the_rows_once",
    "test_of_two_attempts_the_older_can_win",
    "test_leftovers_are_the_attempts_that_are_staged",
    "test_of_several_that_claim_at_once_one_succeeds",
    "test_an_epoch_that_is_there_from_another_start_is_refused",
    "test_an_empty_epoch_between_others_hides_nothing",
    "test_the_description_rebuilds_the_participant",
)


class FilesOnS3:
    """A target in a folder of the bucket, and rows for it."""

    rounds = 2

    @pytest.fixture(autouse=True, params=["bare"])
    def _each_way(self) -> None:
        """Behind a wrapper the same sink is on local disks: spark/test_sink_contract.py."""

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark_on_s3: SparkSession, s3: S3Store, folder: str, tmp_path: Path) -> None:
        self.spark, self.path = spark_on_s3, f"{folder}/target"
        self.remote = Remote(s3, folder, tmp_path)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        shown = [key for key in self.remote.objects("target") if "/_" not in key]
        return [json.loads(line)["number"] for key in shown for line in self.remote.read(key).splitlines()]

    def rebuilt(self, description: dict[str, Json]) -> RollingFileSink:
        return RollingFileSink.from_description(description)


class Contract(FilesOnS3, ParticipantContract[Any]):
    """Each epoch shows its files."""

    def participant(self) -> RollingFileSink:
        return RollingFileSink(self.path, format="json", bucket_by=["odd"], marker="epoch")


class TestSample(Contract):
    """The claims that an object store could break most easily."""


for _name in dir(Contract):
    if _name.startswith("test_") and _name not in SAMPLE:
        setattr(TestSample, _name, None)


@pytest.mark.matrix
class TestFiles(Contract):
    """All of it."""


class TestOpenParts(FilesOnS3, RollsContract[Any]):
    """Parts that stay open, joined through memory."""

    def participant(self) -> RollingFileSink:
        rolling = Rolling(max_rows=1000)
        return RollingFileSink(self.path, format="json", bucket_by=["odd"], rolling=rolling)
