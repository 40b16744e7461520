"""Folders with names that URIs, Hadoop and Spark each spell in their own way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import EpochWriter, RollingFileSink, published
from integration_tests.spark.checks import check_at_the_end, visible_rows
from integration_tests.spark.queries import start
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = ["a b", "100%", "a%20b", "a%2Fb", "a+b", "a#b", "a?b", "Grüße 日本", "it's", "[1]{2}", "a=b,c", "_hidden"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name_can_be_target_and_checkpoint(spark: SparkSession, tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    plain = World(tmp_path / "source-of")
    plain.feed(2)
    world.root.mkdir()
    (world.root / "source").symlink_to(plain.source)
    sink = RollingFileSink(str(world.first), bucket_by=["kind"], marker="bucket")
    frame = spark.readStream.schema("id long, file long, kind string, word string").option("maxFilesPerTrigger", 1)
    query = frame.parquet(str(plain.source)).writeStream.option("checkpointLocation", str(world.checkpoint))
    EpochWriter(sink).start(query.trigger(availableNow=True)).awaitTermination()

    check_at_the_end(world, files=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "source-of"])
    for path in (str(world.first), f"file:{world.first}", f"file://{world.first}"):
        assert [epoch.rows for epoch in published(path)] == [6, 6], path


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_target_may_be_a_uri(spark: SparkSession, world: World, scheme: str) -> None:
    world.feed(1)
    start(spark, world, EpochWriter(RollingFileSink(f"{scheme}{world.first}"))).awaitTermination()

    assert visible_rows(world.first) == all_rows(1)
