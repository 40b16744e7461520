"""Drivers killed around every step of a Cassandra sink, beside files and Delta; workers killed, drivers stalled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from epochal import EpochWriter
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.cassandra.test_all_kinds import CHAIN, check_letters, lane_of_letters
from integration_tests.spark import checks
from integration_tests.spark.chains import killed_at_each, run_here
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending, cassandra_sinks
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.test_kill_chain import OF_CASSANDRA, check_readers_agree
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Of four sinks (files, Delta, rows, totals) the third and fourth are Cassandra's: with @2 its second table.
LONG_CHAIN = (
    "after-enrol@3",
    "before-write@3",
    "after-write@4",
    "after-prepared",
    "before-rows",
    "after-rows",
    "before-ledger",
    "after-ledger",
    "before-rows@2",
    "after-rows@2",
    "before-ledger@2",
    "after-ledger@2",
    "before-cleanup@3",
    "after-cleanup@4",
    "after-commit@4",
)
# Of the two tables alone.
ALONE = (
    "after-enrol",
    "after-write@2",
    "before-rows",
    "after-rows",
    "before-ledger",
    "after-ledger",
    "before-rows@2",
    "after-rows@2",
    "before-ledger@2",
    "after-cleanup@2",
)
MORE_LETTERS = ("after-write@2", "after-prepared", "before-rows", "after-rename", "before-ledger", "after-commit")
IN_WORKERS = ("before-part", "after-part")


def test_the_chains_have_every_failpoint_of_cassandra() -> None:
    for chain in (CHAIN, LONG_CHAIN):
        assert {*OF_CASSANDRA} <= {point.partition("@")[0] for point in chain} | {*IN_WORKERS}


@pytest.mark.matrix
def test_a_kill_around_every_step_leaves_files_delta_and_two_tables_on_the_same_whole_epoch(
    spark: SparkSession, drivers: Children, world: World, space: Keyspace
) -> None:
    def check() -> None:
        checks.check_after_a_kill(world)
        streams.check_after_a_kill(world, space)

    arguments = ("--small-journal", "--sinks", "kinds", "--cassandra", streams.make_tables(space))
    files = killed_at_each(drivers, world, LONG_CHAIN, arguments, check)

    checks.check_at_the_end(world, files=files)
    streams.check_at_the_end(world, space, files=files)
    check_readers_agree(spark, world)


@pytest.mark.matrix
def test_a_kill_around_every_step_leaves_two_tables_on_the_same_whole_epoch(
    drivers: Children, world: World, space: Keyspace
) -> None:
    arguments = ("--small-journal", "--sinks", "cassandra", "--cassandra", streams.make_tables(space))
    check = partial(streams.check_after_a_kill, world, space)
    files = killed_at_each(drivers, world, ALONE, arguments, check)

    streams.check_at_the_end(world, space, files=files)


@pytest.mark.matrix  # by default in the drivers of test_all_kinds.py
def test_output_and_dead_letters_are_the_input_whatever_is_killed(
    drivers: Children, world: World, space: Keyspace
) -> None:
    lane = lane_of_letters(world, space, MORE_LETTERS)
    files = killed_at_each(drivers, world, lane.chain, lane.arguments, lane.check)

    check_letters(world, space, files=files)


def test_nothing_of_an_epoch_is_visible_before_sparks_commit_of_it(
    spark: SparkSession, world: World, space: Keyspace
) -> None:
    world.feed(2)
    writer = EpochWriter(*cassandra_sinks(streams.make_tables(space)))
    seen: list[tuple[bool, set[int], set[int]]] = []

    def batch(rows: DataFrame, epoch: int) -> None:
        writer(rows, epoch)  # all is prepared, and Spark's commits/N comes next
        staged = bool(list(world.checkpoint.glob("epochal-staged/*/*/*")))
        last = max((file for _, _, file in streams.totals(space).values()), default=-1)
        seen.append((staged, checks.committed(world), {row[1] for row in streams.visible(space)} | {*range(last + 1)}))

    to_checkpoint(stream(spark, world), world).foreachBatch(batch).start().awaitTermination()
    writer.settle()

    assert seen == [(True, set(), set()), (True, {0}, {0})]
    streams.check_at_the_end(world, space, files=2)


@pytest.mark.parametrize("point", IN_WORKERS)
def test_workers_that_die_again_and_again_lose_and_double_nothing(
    drivers: Children, world: World, space: Keyspace, point: str
) -> None:
    place = streams.make_tables(space)
    world.feed(2)
    # A worker counts its own hits: each is killed at its second part, and a new one goes on.
    ended = drivers.run(world.root, "--sinks", "cassandra", "--cassandra", place, points=f"{point}=kill@2")

    assert ended.ending is Ending.DONE, ended.output
    assert " held: " in ended.output
    streams.check_at_the_end(world, space, files=2)


def test_a_driver_that_stalled_in_mid_commit_changes_nothing_when_it_wakes(
    spark: SparkSession, drivers: Children, world: World, space: Keyspace
) -> None:
    arguments = ("--sinks", "cassandra", "--cassandra", streams.make_tables(space))
    world.feed(3)
    gate = world.root / "gate"
    stalled = drivers.start(world.root, *arguments, points=f"before-rows=pause:{gate}@3")
    stalled.wait_for(gate)
    world.feed(4)
    run_here(spark, world, *arguments)
    between = streams.totals(space)
    gate.unlink()
    woken = stalled.wait()

    assert woken.ending in (Ending.FENCED_OUT, Ending.CONCURRENT_UPDATE, Ending.FAILED), woken.output
    assert between == streams.expected_totals(4)
    streams.check_at_the_end(world, space, files=4)
