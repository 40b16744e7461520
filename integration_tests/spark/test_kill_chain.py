"""A driver is killed at one failpoint after the other: each start recovers from the kill before it, goes on, and is
killed at the next place. Several streams, each with places of its own, share the drivers.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from integration_tests import steps
from integration_tests.spark.audits import check_all_exact, never_differs
from integration_tests.spark.chains import Lane, killed_at_each, killed_side_by_side, worlds_below
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end, committed, visible_rows
from integration_tests.spark.children import Children
from integration_tests.spark.cut_reader import CutReader
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# With @N the kill comes in the second epoch of the run; without, often while the run recovers.
LONG_CHAIN = (
    "before-generation",
    "after-generation",
    "before-enrol",
    "after-enrol",  # one of two sinks
    "before-stage",
    "before-table",
    "after-table",
    "before-write",
    "after-write",  # leaves staged files without a record, for the next four
    "before-seal",
    "after-seal",
    "before-abort",
    "after-abort",
    "after-stage@2",
    "before-prepared",
    "after-prepared",  # leaves a prepared attempt, which the next start's supersedes
    "before-decided",
    "after-decided",
    "before-rename",
    "after-rename@5",
    "before-marker@2",
    "after-marker@2",
    "before-manifest@2",
    "after-manifest@2",
    "before-log",
    "after-log",
    "before-done",
    "before-commit@3",
    "after-rename@9",
    "before-cleanup@3",
    "after-cleanup@3",
    "after-commit@3",
    "before-cut@2",
    "after-cut@2",
    "after-done@2",
    "before-prepared@2",  # leaves one that is sealed, and removed from each sink
    "before-abort@5",  # in the second sink, once more after the winner was committed
    "after-decided@2",
    "before-snapshot",
    "after-snapshot",
    "before-purge",
    "after-purge",
)
# Every step of files and of Delta on both sides, and a sample of the protocol's: all of those are killed at, for real
# and by the hundred, in integration_tests/kill_matrix. Left out is what test_rolling_kills.py, test_completion.py and
# the eager chain below die at; test_every_failpoint.py sees that nothing is forgotten. Each line is a stream.
LANES = (
    ("before-table", "after-table", "before-write"),
    # The first leaves staged files without a record, which the next start seals and removes, the second a prepared
    # attempt, which the next start's supersedes.
    ("after-write", "after-prepared", "after-decided"),
    ("after-rename@9", "after-manifest@2", "before-rename"),
    ("before-log", "before-cleanup@3", "after-cleanup@3"),
)
CHAIN = tuple(point for lane in LANES for point in lane)
# Their chain is in integration_tests/cassandra.
OF_CASSANDRA = tuple(f"{side}-{step}" for step in steps.OF_CASSANDRA for side in ("before", "after"))
# Theirs is in integration_tests/kafka_sink.
OF_KAFKA = tuple(f"{side}-{step}" for step in steps.OF_KAFKA for side in ("before", "after"))
# Theirs are beside this one, and on HDFS.
OF_ROLLING = tuple(
    f"{side}-{step}"
    for step in ("roll", "rolled", "roll-seal", "merge", "copy", "join", "keep")
    for side in ("before", "after")
)
# Sinks whose parts are never open keep no state; those of kill_matrix/rolling.py and test_rolling_kills.py do.
OF_STATE = tuple(f"{side}-{step}" for step in ("segment", "segment-merge", "state") for side in ("before", "after"))
# Where the decision is the journal's own, and commits/N may be missing for an epoch that is visible.
LONG_EAGER_CHAIN = (
    "after-stage@3",
    "before-prepared@2",
    "after-prepared@2",
    "before-decided@2",
    "after-decided@2",
    "before-rename@4",
    "after-rename@5",
    "before-log@2",
    "after-log@2",
    "before-cleanup@2",
    "after-commit@3",
    "before-done@2",
    "before-snapshot",
)
# Shown by some sinks, by all without Spark's commits/N, and not recorded.
EAGER_CHAIN = ("after-log@2", "after-commit@3", "before-done@2")

HADOOPS = ("--conf", "spark.epochal.localDisk=false")


def test_the_long_chain_has_every_failpoint_but_those_that_have_chains_of_their_own() -> None:
    elsewhere = {*OF_CASSANDRA, *OF_KAFKA, *OF_ROLLING, *OF_STATE}

    assert {point.partition("@")[0] for point in LONG_CHAIN} == set(steps.NAMES) - elsewhere


ARGUMENTS = ("--small-journal", "--sinks", "all")
EAGERLY = (*ARGUMENTS, "--commit", "eager", "--digest")


# In the default suite a stream that commits eagerly is killed in the same drivers.
@pytest.mark.parametrize(
    ("lanes", "eager"),
    [(LANES, EAGER_CHAIN), pytest.param((LONG_CHAIN,), (), marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def test_a_kill_at_every_failpoint_loses_doubles_and_shows_early_nothing(
    spark: SparkSession, drivers: Children, world: World, lanes: tuple[tuple[str, ...], ...], eager: tuple[str, ...]
) -> None:
    worlds, stop = worlds_below(world, len(lanes)), world.root / "stop"
    roots = os.pathsep.join(str(world.root) for world in worlds)
    reader = drivers.run_module("integration_tests.spark.reader", roots, str(stop))
    with ExitStack() as stack:
        cuts = [stack.enter_context(CutReader(spark, world, sinks=3)) for world in worlds]

        def check(number: int) -> None:
            check_after_a_kill(worlds[number])
            if committed(worlds[number]):
                cuts[number].wait_for_a_look()  # however fast or slow the machine is

        killed = [
            Lane(world=world, chain=chain, arguments=ARGUMENTS, check=partial(check, number))
            for number, (world, chain) in enumerate(zip(worlds, lanes, strict=True))
        ]
        files = killed_side_by_side(drivers, [*killed, *([eager_lane(world, eager)] if eager else [])], spark)
    stop.touch()
    seen = json.loads(reader.wait().output.splitlines()[-1])

    for number, (lane, cut) in enumerate(zip(worlds, cuts, strict=True)):
        check_at_the_end(lane, files=files[number])
        assert cut.faults == []
        assert cut.epochs[-1] == max(committed(lane)), "the last cut has everything"
        check_readers_agree(spark, lane)
    assert sum(len(cut.epochs) for cut in cuts) > 2 + len(cuts), "cuts between the kills, not only at the end"
    assert seen["faults"] == []
    assert seen["looks"] > 8 * len(lanes[0])
    assert seen["files"] > max(files)
    if eager:
        check_an_eager_stream(spark, world, files=files[-1])


# Without epochal's file system, as in sessions that are not ours; in the default suite the drivers of test_two_drivers.
@pytest.mark.matrix
@pytest.mark.parametrize("more", [(), HADOOPS], ids=["epochal's disk", "Hadoop's disk"])
def test_eager_commits_survive_a_kill_at_every_failpoint_of_theirs_and_an_audit_finds_them_exact(
    spark: SparkSession, drivers: Children, world: World, more: tuple[str, ...]
) -> None:
    lane = eager_lane(world, LONG_EAGER_CHAIN, *more)

    files = killed_at_each(drivers, world, lane.chain, lane.arguments, lane.check)
    check_an_eager_stream(spark, world, files=files)


def eager_lane(world: World, chain: tuple[str, ...], *more: str) -> Lane:
    def check() -> None:
        check_after_a_kill(world, eager=True)
        never_differs(world.checkpoint)

    return Lane(world=world, chain=chain, arguments=(*EAGERLY, *more), check=check)


def check_an_eager_stream(spark: SparkSession, world: World, *, files: int) -> None:
    check_at_the_end(world, files=files)
    check_readers_agree(spark, world)
    check_all_exact(world.checkpoint, sinks=3, rows=files * ROWS)


def check_readers_agree(spark: SparkSession, world: World) -> None:
    """Delta's own reader and delta-rs see the same rows; `check_at_the_end` has counted those of the log."""
    theirs = spark.read.format("delta").load(str(world.table)).collect()
    others = DeltaTable(world.table).to_pyarrow_table().to_pylist()

    assert Counter(row["id"] for row in theirs) == Counter(row["id"] for row in others)
    assert len(theirs) == sum(visible_rows(world.table).values())
