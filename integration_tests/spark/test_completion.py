"""Markers of buckets whose time is over: never before their rows, once more for rows that are late."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import Complete, EpochWriter, Rolling, TimeBucket
from integration_tests.spark.chains import Lane, killed_side_by_side, publish_what_is_open, run_here, worlds_below
from integration_tests.spark.checks import (
    check_at_the_end,
    check_parts_after_a_kill,
    planned,
    rows_in,
    visible_files,
    visible_rows,
)
from integration_tests.spark.children import Children
from integration_tests.spark.driver import LATE, in_hours
from integration_tests.spark.queries import archive, stream, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, World, all_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

HOUR = TimeBucket("at", "hour")
CHAIN = ("before-marker@3", "after-marker@2", "before-manifest@6")
SIDE_BY_SIDE = tuple((point,) for point in CHAIN)
LONG_CHAIN = (
    "after-write@3",
    "after-prepared@3",
    "before-marker@3",
    "after-marker@2",
    "before-keep@4",
    "before-manifest@6",
    "after-manifest@3",
    "after-cleanup@3",
    "after-snapshot",
)


def hour_folder(hour: int) -> str:
    return f"hour=1970-01-{1 + hour // 24:02d}T{hour % 24:02d}"


def markers(target: Path) -> dict[str, list[str]]:
    """The markers of each bucket."""
    found: dict[str, list[str]] = {}
    for path in sorted(target.glob("hour=*/_SUCCESS*")):
        found.setdefault(path.parent.name, []).append(path.name)
    return found


def is_late(row: tuple[int, int, str, str]) -> bool:
    return row[1] % LATE == 0 and row[1] > 0 and row[0] % ROWS == 0


def check_markers(world: World) -> None:
    """A marked bucket has all rows of its hour that were in time; one marked twice has the late one too."""
    for target in world.targets:
        for folder, names in markers(target).items():
            assert names == ["_SUCCESS", "_SUCCESS-2"][: len(names)], (target.name, folder)
            found = {row for file in visible_files(target / folder) for row in rows_in(file)}
            hour = next(h for h in range(1000) if hour_folder(h) == folder)
            assert found >= {row for row in rows_of(hour) if not is_late(row)}, (target.name, folder)
            assert len(names) == 1 or {row for row in rows_of(hour + LATE) if is_late(row)} <= found, folder


def expected(files: int) -> dict[str, list[str]]:
    """By a watermark that an epoch sees when the one before it is over: the last two hours are not complete."""
    return {
        hour_folder(hour): ["_SUCCESS", "_SUCCESS-2"] if hour % LATE == 0 and hour + LATE < files else ["_SUCCESS"]
        for hour in range(files - 2)
    }


def test_a_bucket_is_marked_when_the_watermark_has_passed_it_and_again_for_late_rows(
    spark: SparkSession, world: World
) -> None:
    world.feed(8)
    run_here(spark, world, "--sinks", "hours")

    assert markers(world.first) == markers(world.second) == expected(8)
    second = json.loads((world.second / hour_folder(0) / "_SUCCESS-2").read_text())
    assert (second["bucket"], second["version"], second["epoch"]) == (hour_folder(0), 2, 5)
    # No limit of its policy was reached: parts have appeared because their buckets were complete.
    assert visible_rows(world.second) == Counter(row for row in all_rows(8).elements() if row[1] < 6)


@pytest.mark.parametrize(
    "lanes", [SIDE_BY_SIDE, pytest.param((LONG_CHAIN,), marks=pytest.mark.matrix)], ids=["short", "long"]
)
def test_kills_around_every_step_leave_no_marker_before_its_rows(
    spark: SparkSession, drivers: Children, world: World, lanes: tuple[tuple[str, ...], ...]
) -> None:
    def check(one: World) -> None:
        check_parts_after_a_kill(one)
        check_markers(one)

    arguments = ("--small-journal", "--sinks", "hours")
    killed = [  # an hour is an epoch
        Lane(world=one, chain=chain, arguments=arguments, check=partial(check, one), ahead=8, rest=())
        for one, chain in zip(worlds_below(world, len(lanes)), lanes, strict=True)
    ]
    counts = killed_side_by_side(drivers, killed, spark)

    for lane, files in zip(killed, counts, strict=True):
        apart = set(Counter(planned(lane.world).values()).values()) == {1}
        publish_what_is_open(str(lane.world.checkpoint))
        check_at_the_end(lane.world, files=files)
        check_markers(lane.world)
        if apart:  # else a kill has put two files into one epoch, and some hours were complete an epoch earlier
            assert markers(lane.world.first) == markers(lane.world.second) == expected(files)


def test_the_clock_completes_a_bucket_without_new_rows(spark: SparkSession, world: World) -> None:
    world.feed(1)
    over = 3600.0  # when the hour of the first file ends
    complete = Complete(by="clock", delay=time.time() - over + 4)
    sink = archive(world, bucket_by=[HOUR], marker=complete, rolling=Rolling(max_age="1 h"))
    frame = in_hours(stream(spark, world))
    query = EpochWriter(sink).start(frame.writeStream.option("checkpointLocation", str(world.checkpoint)))
    try:
        wait_until(lambda: markers(world.first) == {hour_folder(0): ["_SUCCESS"]}, "the hour to be marked")
        shown = visible_rows(world.first)
        world.feed(LATE + 1)
        wait_until(lambda: len(markers(world.first)[hour_folder(0)]) == 2, "it to be marked for the late row")
    finally:
        query.stop()

    assert shown == all_rows(1)
    assert [*markers(world.first)] == [hour_folder(0)]  # the others are over an hour later, and more
    assert visible_rows(world.first) == shown + Counter(row for row in rows_of(LATE) if is_late(row))


def test_a_query_without_a_watermark_is_told_that_nothing_will_be_marked(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.feed(3)
    frame = stream(spark, world).selectExpr("*", "timestamp_seconds(id) AS at")
    with caplog.at_level(logging.WARNING, "epochal"):
        sink = archive(world, bucket_by=[HOUR], marker=Complete())
        EpochWriter(sink).start(to_checkpoint(frame, world)).awaitTermination()

    assert [r.message for r in caplog.records if "withWatermark" in r.message] != []
    assert markers(world.first) == {}
    assert visible_rows(world.first) == all_rows(3)
