"""Drivers with Spark, killed around every step of Delta with the table on an object store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.testing.servers import S3Store
from integration_tests.objects import lake
from integration_tests.objects.remote import Remote
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end
from integration_tests.spark.children import Children
from integration_tests.spark.world import all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.usefixtures("reached")]

# With @N the kill comes in the second epoch of the run; without, often while the run recovers.
# By default the drivers of cassandra/test_kinds_on_s3.py die.
CHAIN = (
    "before-table",
    "after-table",
    "before-write",
    "after-write",  # leaves staged files without a record, which the next start seals and removes
    "after-prepared",
    "after-decided",
    "before-rename",
    "after-rename@2",
    "before-log",
    "after-log",
    "before-cleanup@2",
    "after-cleanup@2",
    "after-commit@2",
)


@pytest.mark.matrix
@pytest.mark.parametrize("checkpoint", ["there", "here"])
def test_kills_around_every_step_of_delta_lose_double_and_show_early_nothing(
    checkpoint: str,
    spark_on_s3: SparkSession,
    drivers: Children,
    s3: S3Store,
    folder: str,
    tmp_path: Path,
) -> None:
    remote = Remote(s3, folder, tmp_path, checkpoint=checkpoint == "there")
    arguments = ["--sinks", "delta", *remote.arguments]
    files = killed_at_each(drivers, remote.world, CHAIN, arguments, lambda: check_after_a_kill(remote.look()), ahead=3)

    check_at_the_end(remote.look(), files=files)
    table = f"{folder}/table"
    theirs = spark_on_s3.read.format("delta").load(table.replace("s3://", "s3a://")).collect()
    others = lake.opened(table).to_pyarrow_table().to_pylist()
    once = Counter((number, file, word) for number, file, _, word in all_rows(files))
    assert Counter((r["id"], r["file"], r["word"]) for r in theirs) == once, "to Delta's own reader"
    assert Counter((r["id"], r["file"], r["word"]) for r in others) == once, "to delta-rs"
