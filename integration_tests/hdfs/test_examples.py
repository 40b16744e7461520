"""The example of an archive on HDFS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import epochal
from integration_tests.examples import run_example, settings_restored
from integration_tests.hdfs.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_parts_grow_over_epochs_and_the_rest_stays_open(spark: SparkSession, remote: Remote) -> None:
    with settings_restored(spark):
        said = run_example("rolling_archive_hdfs.py", remote.uri)
        again = run_example("rolling_archive_hdfs.py", remote.uri)

    archive = f"{remote.uri}/archive"
    files = [f"{archive}/{name}" for epoch in epochal.published(archive) for name, _ in epoch.files]
    visible = spark.read.json(files).count()
    assert said[-1] == f"{visible} events are visible, the others are in open parts"
    assert len(files) * 300 <= visible < 1000
    assert len(said) > 1
    assert again == said, "nothing has arrived since"
