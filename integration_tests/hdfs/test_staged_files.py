"""What is staged on HDFS and changed by another program before it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.sinks.files.untouched import ACCEPTED, COPIES
from epochal.sinks.storage.webhdfs import ADDRESS
from epochal.txn.errors import DataLost
from epochal.txn.model import Outcome
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.tampering import Tampered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def epoch(spark: SparkSession, remote: Remote) -> Tampered:
    def write(path: str, data: bytes) -> None:
        remote.client.write(path.removeprefix(remote.cluster.uri), data, overwrite=True)

    return Tampered(f"{remote.uri}/first", spark, write)


def test_it_is_not_published_until_a_copy_is_put_back_and_accepted(
    epoch: Tampered, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch.check_that_changed_rows_are_not_published()
    epoch.put_back()
    with pytest.raises(DataLost, match="was written again"):
        epoch.commit()
    monkeypatch.setenv(COPIES, ACCEPTED)

    assert epoch.commit() is Outcome.COMMITTED
    epoch.check_that_all_is_published()


@pytest.mark.matrix
def test_a_copy_that_is_put_back_with_its_time_is_published(epoch: Tampered, remote: Remote) -> None:
    path = epoch.path.removeprefix(remote.cluster.uri)
    time = remote.client.status(path)["modificationTime"]
    epoch.check_that_changed_rows_are_not_published()
    epoch.put_back()
    remote.client.set_times(path, modification_time=time)

    assert epoch.commit() is Outcome.COMMITTED
    epoch.check_that_all_is_published()


@pytest.mark.matrix
def test_over_http_it_is_seen_too(epoch: Tampered, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `epochal recover` does it, without Spark."""
    monkeypatch.setenv(ADDRESS, remote.cluster.web)
    monkeypatch.setattr("epochal.sinks.storage.hadoop.running_session", lambda: None)

    epoch.check_that_changed_rows_are_not_published()
