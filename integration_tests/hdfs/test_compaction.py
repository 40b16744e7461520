"""Compactions on HDFS: killed around each step, with a reader by manifest who looks all the while."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.sinks.files.options import Format
from epochal.sinks.storage.webhdfs import ADDRESS
from integration_tests import steps
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.checks import leftovers, visible_files, visible_rows
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.epochs import publish_epochs
from integration_tests.spark.world import all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

EACH = 2  # epochs between two kills


def check(remote: Remote, epochs: int, *, files: int) -> None:
    target = remote.look().first

    assert visible_rows(target) == all_rows(epochs)
    assert len(visible_files(target)) == files
    assert leftovers(target) == []


def test_kills_around_every_step_on_hdfs_without_java_show_readers_every_row_once(
    spark: SparkSession, drivers: Children, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, remote.cluster.web)  # for the processes; this one has Spark
    target, stop = f"{remote.uri}/first", tmp_path / "stop"
    sink = epochal.RollingFileSink(target, format="json", bucket_by=["kind"])
    publish_epochs(spark, sink, range(EACH))
    reader = drivers.run_module("integration_tests.spark.manifest_reader", target, str(stop))
    epochs = EACH
    for point in steps.NAMES_OF_COMPACTION:
        publish_epochs(spark, sink, range(epochs, epochs + EACH))
        epochs += EACH
        killed = drivers.run_module("epochal.cli", "compact", target, points=f"{point}=kill").wait()

        assert killed.ending is Ending.KILLED, f"{point}: {killed.output}"
    last = drivers.run_module("epochal.cli", "compact", target).wait()
    stop.touch()
    seen = json.loads(reader.wait().output.splitlines()[-1])

    assert last.ending is Ending.DONE, last.output
    assert seen["faults"] == []
    assert seen["lists"] > len(steps.NAMES_OF_COMPACTION)
    check(remote, epochs, files=3)


KILLS = ("after-compact-stage", "before-compact-rename=kill@2", "after-compact-done")


@pytest.mark.parametrize(
    ("format_", "kills"),
    # What comes after a joined file is staged is the same for all formats: the test above dies there.
    [
        ("parquet", KILLS[:1]),
        pytest.param("csv", KILLS, marks=pytest.mark.matrix),
        pytest.param("parquet", KILLS[1:], marks=pytest.mark.matrix),
    ],
)
def test_kills_of_a_compaction_through_spark_lose_and_double_nothing(
    spark: SparkSession, drivers: Children, remote: Remote, format_: Format, kills: tuple[str, ...]
) -> None:
    target = f"{remote.uri}/first"
    header = {"header": "true"} if format_ == "csv" else {}
    sink = epochal.RollingFileSink(target, format=format_, bucket_by=["kind"], options=header)
    publish_epochs(spark, sink, range(4))
    command = ("epochal.cli", "compact", target, "--header", "yes")
    for point in kills:
        points = point if "=" in point else f"{point}=kill"
        killed = drivers.run_module(*command, points=points).wait()

        assert killed.ending is Ending.KILLED, f"{point}: {killed.output}"
        assert by_manifest(spark, target, format_, header) == Counter(row[0] for row in all_rows(4))
    last = drivers.run_module(*command).wait()

    assert last.ending is Ending.DONE, last.output
    check(remote, 4, files=3)


def by_manifest(spark: SparkSession, target: str, format_: Format, options: dict[str, str]) -> Counter[int]:
    files = [f"{target}/{path}" for epoch in epochal.published(target) for path, _ in epoch.files]
    frame = spark.read.schema("id long, file long, kind string, word string").options(**options).format(format_)
    return Counter(row[0] for row in frame.option("__globPaths__", "false").load(files).select("id").collect())
