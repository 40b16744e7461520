"""Compactions killed around each of their steps, while a reader by manifest looks and a stream goes on writing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal.sinks.files.options import Format
from epochal.txn import failpoints
from integration_tests import steps
from integration_tests.spark.chains import publish_what_is_open
from integration_tests.spark.checks import check_at_the_end, leftovers, visible_files, visible_rows
from integration_tests.spark.children import REPOSITORY, Child, Children, Ended
from integration_tests.spark.driver import Ending
from integration_tests.spark.epochs import publish_epochs
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

EACH = 2  # epochs between two kills


def compact(drivers: Children, target: str, *options: str, points: str = "") -> Ended:
    """The command, in a process of its own."""
    return drivers.run_module("epochal.cli", "compact", target, *options, points=points).wait()


def reading(drivers: Children, target: str, stop: Path, *options: str) -> Child:
    return drivers.run_module("integration_tests.spark.manifest_reader", target, str(stop), *options)


def seen(reader: Child, stop: Path) -> Any:
    stop.touch()
    found = json.loads(reader.wait().output.splitlines()[-1])

    assert found["faults"] == []
    assert found["looks"] > 10
    return found


# What comes before and after is the same for all formats; those that are merged start a Spark to stage a joined file.
OF_MERGING = ("after-compact-stage",)


@pytest.mark.parametrize(
    ("format_", "points"),
    [
        ("json", steps.NAMES_OF_COMPACTION),
        ("parquet", OF_MERGING),
        pytest.param("parquet", steps.NAMES_OF_COMPACTION, marks=pytest.mark.matrix),
    ],
    ids=["json", "parquet", "parquet-long"],
)
def test_kills_around_every_step_show_readers_by_manifest_every_row_once(
    spark: SparkSession, drivers: Children, tmp_path: Path, format_: Format, points: tuple[str, ...]
) -> None:
    target, stop = tmp_path / "target", tmp_path / "stop"
    sink = epochal.RollingFileSink(str(target), format=format_, bucket_by=["kind"])
    publish_epochs(spark, sink, range(EACH))
    reader = reading(drivers, str(target), stop)
    epochs = EACH
    for point in points:
        publish_epochs(spark, sink, range(epochs, epochs + EACH))
        epochs += EACH
        killed = compact(drivers, str(target), points=f"{point}=kill")

        assert killed.ending is Ending.KILLED, f"{point}: {killed.output}"
        check_by_manifest(target, epochs)
    last = compact(drivers, str(target))

    assert last.ending is Ending.DONE, last.output
    assert seen(reader, stop)["lists"] > len(points)
    check_by_manifest(target, epochs)
    assert visible_rows(target) == all_rows(epochs)
    assert len(visible_files(target)) == 3
    assert leftovers(target) == []


def check_by_manifest(target: Path, epochs: int) -> None:
    listed = [target / path for epoch in epochal.published(str(target)) for path, _ in epoch.files]
    length = {file: file.stat().st_size for file in listed}

    assert len(length) == len(listed)
    assert [epoch.epoch for epoch in epochal.published(str(target))] == list(range(epochs))


@pytest.mark.parametrize("point", ["before-compact-rename", "before-compact-done", "before-compact-remove"])
def test_one_who_slept_while_others_compacted_twice_does_no_harm(
    spark: SparkSession, drivers: Children, tmp_path: Path, point: str
) -> None:
    target, stop, gate = tmp_path / "target", tmp_path / "stop", tmp_path / "gate"
    sink = epochal.RollingFileSink(str(target), format="json", bucket_by=["kind"])
    publish_epochs(spark, sink, range(2))
    reader = reading(drivers, str(target), stop)
    sleeper = drivers.run_module("epochal.cli", "compact", str(target), points=f"{point}=pause:{gate}")
    sleeper.wait_for(gate)
    first = compact(drivers, str(target))
    publish_epochs(spark, sink, range(2, 4))
    second = compact(drivers, str(target))
    gate.unlink()
    slept = sleeper.wait()

    assert [ended.ending for ended in (first, second, slept)] == [Ending.DONE] * 3, slept.output
    seen(reader, stop)
    assert visible_rows(target) == all_rows(4)
    assert len(visible_files(target)) == 3
    assert leftovers(target) == []


@pytest.mark.parametrize(
    "sinks", [pytest.param("json", marks=pytest.mark.matrix), "rolling-rows-json"], ids=["plain", "rolling"]
)
def test_a_stream_goes_on_while_its_files_are_compacted_and_kills_hit_both(
    drivers: Children, world: World, sinks: str
) -> None:
    stop = world.root / "stop"
    rolls = sinks != "json"
    world.first.mkdir()
    reader = reading(drivers, str(world.first), stop, *(["--rolls"] if rolls else []))
    compactions = 0
    for number, driver_point in enumerate(("before-manifest=kill@4", "after-rename=kill@5", "")):
        world.feed(6 * (number + 1))
        driver = drivers.start(world.root, "--small-journal", "--sinks", sinks, points=driver_point)
        compactions += compact_while(driver, world.first, kill_each=3)
        ended = driver.wait()

        assert ended.ending is (Ending.KILLED if driver_point else Ending.DONE), ended.output
    if rolls:
        publish_what_is_open(str(world.checkpoint))
    last = compact(drivers, str(world.first))

    assert last.ending is Ending.DONE, last.output
    assert compactions > 3
    assert seen(reader, stop)["lists"] > 3
    check_at_the_end(world, files=18)
    assert len(visible_files(world.first)) <= 3


def compact_while(driver: Child, target: Path, *, kill_each: int) -> int:
    """Compact again and again for as long as a driver runs, each few times with a kill; how many were made."""
    runs = 0
    while driver._process.poll() is None:
        points = steps.NAMES_OF_COMPACTION
        killed = f"{points[runs % len(points)]}=kill" if runs % kill_each == 0 else ""
        done = subprocess.run(
            [sys.executable, "-m", "epochal.cli", "compact", str(target)],
            cwd=REPOSITORY,
            env={**os.environ, failpoints.VARIABLE: killed},
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        nothing_yet = done.returncode == 2 and "no manifest of epochal" in done.stderr
        assert done.returncode in (0, Ending.KILLED) or nothing_yet, done.stderr
        runs += 1
    return len(list((target / "_epochal" / "compactions").glob("*.done.json")))
