"""Drivers killed around every step of a PostgreSQL sink; beside the other kinds in cassandra/test_all_kinds.py."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from epochal.testing.servers import PostgresServer
from integration_tests.postgres import streams
from integration_tests.postgres.tables import Space, space_on
from integration_tests.spark.chains import Lane, killed_side_by_side, worlds_below
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Of two tables: with @2 it is the second, whose rows are staged in a table of their own.
LANES = (
    ("before-attempt", "after-attempt@2"),
    ("before-filed@2", "after-filed"),
    ("before-shown", "after-shown@2"),
)
CHAIN = tuple(point for lane in LANES for point in lane)
LONG_CHAIN = (
    "after-enrol",
    *CHAIN,
    "after-prepared",
    "before-attempt@2",
    "after-attempt",
    "before-filed",
    "after-filed@2",
    "before-prepared",
    "after-decided",
    "before-shown@2",
    "after-shown",
    "before-abort",
    "after-abort",
    "after-commit@2",
    "before-done",
)
IN_WORKERS = ("before-copied", "after-copied")


def test_a_kill_around_every_step_leaves_two_tables_on_the_same_whole_epoch(
    spark: SparkSession, drivers: Children, world: World, postgres: PostgresServer
) -> None:
    _killed_at(LANES, spark, drivers, world, postgres)


@pytest.mark.matrix
def test_the_same_at_every_step_of_both(
    spark: SparkSession, drivers: Children, world: World, postgres: PostgresServer
) -> None:
    _killed_at((LONG_CHAIN,), spark, drivers, world, postgres, rows=" PRIMARY KEY")


@pytest.mark.parametrize("point", IN_WORKERS)
def test_a_task_that_dies_and_runs_again_loses_and_doubles_nothing(
    drivers: Children, world: World, space: Space, point: str
) -> None:
    """A worker counts its own hits: it is killed at its second part, and a new one takes the task again."""
    place = streams.make_tables(space)
    world.feed(4)
    retried = ("--master", "local[2,4]", "--conf", "spark.python.worker.reuse=true")
    ended = drivers.run(world.root, "--sinks", "postgres", "--postgres", place, *retried, points=f"{point}=kill@2")

    assert ended.ending is Ending.DONE, ended.output
    assert "Python worker exited unexpectedly" in ended.output
    streams.check_at_the_end(world, space, files=4)


def _killed_at(
    lanes: tuple[tuple[str, ...], ...],
    spark: SparkSession,
    drivers: Children,
    world: World,
    server: PostgresServer,
    rows: str = "",
) -> None:
    with ExitStack() as stack:
        spaces = [stack.enter_context(space_on(server)) for _ in lanes]
        killed = [
            Lane(
                world=one,
                chain=chain,
                arguments=("--small-journal", "--sinks", "postgres", "--postgres", streams.make_tables(space, rows)),
                check=partial(streams.check_after_a_kill, one, space),
            )
            for one, chain, space in zip(worlds_below(world, len(lanes)), lanes, spaces, strict=True)
        ]
        counts = killed_side_by_side(drivers, killed, spark)

        for lane, space, files in zip(killed, spaces, counts, strict=True):
            streams.check_at_the_end(lane.world, space, files=files)
