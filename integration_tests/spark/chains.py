"""A driver is killed at one place after the other, on one stream, and then runs to the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.cli import main
from integration_tests.spark.checks import planned
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending, parsed, run
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AHEAD = 6  # files that the source always has more than are planned: no run ends before its kill
THE_REST = ("--files-per-trigger", "3")  # the last run, which nobody kills, reads what is ahead in two epochs or three


def killed_at_each(
    drivers: Children,
    world: World,
    chain: Sequence[str],
    arguments: Sequence[str],
    check: Callable[[], object],
    *,
    ahead: int = AHEAD,
    rest: Sequence[str] = THE_REST,
) -> int:
    """Start, kill and check once for each place, then run to the end. Returns how many files there were."""
    for point in chain:
        name, _, hit = point.partition("@")
        files = len(planned(world)) + ahead
        world.feed(files)
        ended = drivers.run(world.root, *arguments, points=f"{name}=kill@{hit or 1}")

        assert ended.ending is Ending.KILLED, f"{point}: {ended.output}"
        check()
    last = drivers.run(world.root, *arguments, *rest)

    assert last.ending is Ending.DONE, last.output
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A stream that is killed at one place after the other, in the drivers of others that are."""

    world: World
    chain: Sequence[str]
    arguments: Sequence[str]
    check: Callable[[], object]
    ahead: int = AHEAD
    rest: Sequence[str] = THE_REST


def killed_side_by_side(drivers: Children, lanes: Sequence[Lane], spark: SparkSession | None = None) -> list[int]:
    """As `killed_at_each` for several streams with as many kills, which share their drivers: each kill finds every
    stream at a place of its own. With a session, the last runs are in it. Returns how many files each had.
    """
    files = [0 for _ in lanes]
    for points in zip(*(lane.chain for lane in lanes), strict=True):
        files = [len(planned(lane.world)) + lane.ahead for lane in lanes]
        for lane, number in zip(lanes, files, strict=True):
            lane.world.feed(number)
        where = [(point, lane.world.root, lane.arguments) for point, lane in zip(points, lanes, strict=True)]
        ended = drivers.run_lanes(where)

        assert ended.ending is Ending.KILLED, f"{points}: {ended.output}"
        for lane in lanes:
            lane.check()
    if spark is not None:
        for lane in lanes:
            run_here(spark, lane.world, *lane.arguments, *lane.rest)
        return files
    last = drivers.run_lanes([("", lane.world.root, (*lane.arguments, *lane.rest)) for lane in lanes])

    assert last.ending is Ending.DONE, last.output
    return files


def run_here(spark: SparkSession, world: World, *arguments: str) -> None:
    """What a driver does that nobody kills, in this process: it has a session, and a start of another takes longer than
    all that follows.
    """
    run(spark, parsed([str(world.root), *arguments]))


def worlds_below(world: World, number: int) -> list[World]:
    """A world for each lane."""
    roots = [world.root / f"lane-{lane}" for lane in range(number)]
    for root in roots:
        root.mkdir()
    return [World(root) for root in roots]


def killed_between_epochs(
    drivers: Children,
    world: World,
    chain: Sequence[str],
    arguments: Sequence[str],
    check: Callable[[], object],
    spark: SparkSession | None = None,
) -> int:
    """The same for parts that are closed when nothing comes any more: each run adds two epochs, waits until they are
    idle, and dies. With a session, the last run is in it. Returns how many files there were.
    """
    for number, point in enumerate(chain, 1):
        name, _, hit = point.partition("@")
        world.feed(2 * number)
        ended = drivers.run(world.root, "--endless", *arguments, points=f"{name}=kill@{hit or 1}")

        assert ended.ending is Ending.KILLED, f"{point}: {ended.output}"
        check()
    if spark is not None:
        run_here(spark, world, *arguments)
        return 2 * len(chain)
    last = drivers.run(world.root, *arguments)

    assert last.ending is Ending.DONE, last.output
    return 2 * len(chain)


def killed_under(
    policy: str,
    drivers: Children,
    world: World,
    closing: Sequence[str],
    arguments: Sequence[str],
    check: Callable[[], object],
) -> int:
    """Kills around the steps of parts that stay open, `closing` among them: what makes one file of the pieces of each
    sink. Returns how many files there were.
    """
    before, after = ([f"{side}-{step}" for step in dict.fromkeys(closing)] for side in ("before", "after"))
    if policy == "idle":
        in_the_roll = 2 * len(closing) + 1
        chain = ("before-roll", *before, *after, f"before-manifest@{in_the_roll}", "before-rolled")
        return killed_between_epochs(drivers, world, chain, arguments, check)
    chain = ("after-prepared@3", *before, "before-keep@2", *after, "before-manifest@4", "before-cleanup@3")
    return killed_at_each(drivers, world, chain, arguments, check, rest=())  # policies count epochs


def publish_all_that_is_open(checkpoints: Sequence[str]) -> None:
    """Of several streams, the first by the command, the others here: on HDFS and S3 the command starts a Spark."""
    publish_what_is_open(checkpoints[0])
    for checkpoint in checkpoints[1:]:
        assert main(["roll", checkpoint, "--json"]) == 0


def publish_what_is_open(checkpoint: str) -> str:
    """What a user does who wants to see it all; what the command says. Merging on HDFS needs Spark, which it starts."""
    command = [sys.executable, "-m", "epochal.cli", "roll", checkpoint, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    return done.stdout
