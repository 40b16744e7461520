"""Drivers killed around every step of parts that stay open over epochs, by every policy and format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest

from epochal.txn import failpoints
from integration_tests.spark.audits import check_all_exact, never_differs
from integration_tests.spark.chains import (
    Lane,
    killed_at_each,
    killed_between_epochs,
    killed_side_by_side,
    killed_under,
    publish_all_that_is_open,
    publish_what_is_open,
    run_here,
    worlds_below,
)
from integration_tests.spark.checks import (
    check_at_the_end,
    check_closed_by_policy,
    check_parts_after_a_kill,
    visible_files,
)
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.test_kill_chain import OF_ROLLING
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# Parquet is merged; Avro and JSON are copied, on local disks.
ALL = "parquet,avro,json"
GROUPS = "parquet,groups,orc"  # Parquet whose row groups are copied between files that are merged
# With @N the kill comes in a later epoch or sink of the run.
LONG_CHAIN = (
    "after-write@2",
    "before-merge",
    "after-merge",
    "before-copy",
    "after-copy",
    "after-copy@3",
    "after-prepared@2",  # leaves a prepared attempt that loses, with merged files in it
    "after-decided@2",
    "before-rename@2",
    "before-keep@2",
    "after-keep",
    "before-manifest@3",
    "before-cleanup@2",
    "after-cleanup@2",
    "before-roll-seal",
    "after-roll-seal",
    "after-snapshot",
    "after-purge",
)
# By default without steps of the protocol, which the matrix without Spark dies at, and without those that are the same
# for parts that are never open: test_kill_chain.py dies there. Each line is a stream. The last place of the first is in
# the thread that folds, where the most is half done: segments are merged, and the state does not name the new one.
LANES = (
    ("before-merge", "after-keep", "after-segment-merge"),
    ("after-merge", "before-copy", "before-rename@2"),
    ("after-copy", "after-prepared@2", "before-keep@2"),
)
CHAIN = tuple(point for lane in LANES for point in lane)
# In the thread that folds, while epochs go on: after each of its steps, which is before the next one.
IN_THE_FOLDING = ("after-segment", "after-segment-merge", "after-state", "after-snapshot", "before-purge@2")
# Between epochs, with nothing left to read: each run adds two epochs, waits until its parts have been idle, and dies.
LONG_IDLE_CHAIN = (
    "before-roll",
    "after-roll",
    "before-merge",
    "after-copy",
    "before-rename@2",
    "before-manifest@7",  # the first of the roll: there are three sinks, and two epochs
    "before-rolled",
    "after-rolled",
)
IDLE_CHAIN = ("after-copy",)
# What makes one file of pieces on local disks.
CLOSING = {"json": "copy", "csv": "copy", "avro": "copy", "parquet": "merge", "orc": "merge"}
ON_HDFS = ("before-join", "after-join")  # integration_tests/hdfs/test_rolling.py


def test_the_chains_have_every_failpoint_of_rolling() -> None:
    of_sinks = {*OF_ROLLING} - {*failpoints.names(failpoints.PROTOCOL)}

    assert {point.partition("@")[0] for point in (*CHAIN, *IDLE_CHAIN, *ON_HDFS)} >= of_sinks
    assert {point.partition("@")[0] for point in (*LONG_CHAIN, *LONG_IDLE_CHAIN, *ON_HDFS)} >= {*OF_ROLLING}


@pytest.mark.parametrize(
    ("lanes", "formats"),
    [
        (LANES, ALL),
        pytest.param(((*LONG_CHAIN, *IN_THE_FOLDING),), ALL, marks=pytest.mark.matrix),
        *(pytest.param((LONG_CHAIN,), f, marks=pytest.mark.matrix) for f in (GROUPS, "avro")),
    ],
    ids=["short", "long", "row groups, long", "avro, long"],
)
def test_kills_around_every_step_of_open_parts_lose_and_double_nothing(
    spark: SparkSession, drivers: Children, world: World, lanes: tuple[tuple[str, ...], ...], formats: str
) -> None:
    worlds = worlds_below(world, len(lanes))
    staged = [0 for _ in worlds]

    def check(number: int) -> None:
        one = worlds[number]
        staged[number] += len(list(one.first.glob("_epochal/staged/*/*")))
        check_parts_after_a_kill(one)
        never_differs(one.checkpoint)

    arguments = ("--small-journal", "--sinks", f"rolling-rows-{formats}", "--digest")
    chains = [_met_by(formats, lane) for lane in lanes]
    killed = [
        Lane(world=one, chain=chain, arguments=arguments, check=partial(check, number))
        for number, (one, chain) in enumerate(zip(worlds, chains, strict=True))
    ]
    files = killed_side_by_side(drivers, killed, spark)

    of = formats.split(",")  # pieces that are open are looked into as well
    for one, number in zip(worlds, files, strict=True):
        check_all_exact(one.checkpoint, sinks=len(of), rows=number * ROWS, without_digest=of.count("avro"))
    publish_all_that_is_open([str(one.checkpoint) for one in worlds])
    for one, number in zip(worlds, files, strict=True):
        check_at_the_end(one, files=number)  # which lists every file that is not meant to stay
        assert len(visible_files(one.first)) < 2 * number  # of 3 buckets, each epoch would make 3
    assert min(staged) > 0  # else the kills came at the wrong time


@pytest.mark.parametrize(
    ("chain", "formats"),
    [
        (IDLE_CHAIN, GROUPS),
        *(pytest.param(LONG_IDLE_CHAIN, f, marks=pytest.mark.matrix) for f in (GROUPS, ALL, "avro")),
    ],
    ids=["short", "long", "all, long", "avro, long"],
)
def test_kills_around_every_step_of_a_roll_between_epochs_lose_and_double_nothing(
    spark: SparkSession, drivers: Children, world: World, chain: tuple[str, ...], formats: str
) -> None:
    chain, sinks = _met_by(formats, chain), ("--sinks", f"rolling-idle-{formats}")
    files = killed_between_epochs(drivers, world, chain, sinks, lambda: check_parts_after_a_kill(world), spark)

    _publish(world)
    check_at_the_end(world, files=files)


def test_a_driver_that_slept_in_a_roll_closes_nothing_that_a_newer_one_has_built_on(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    gate = world.root / "gate"
    sinks = ["--sinks", "rolling-idle-parquet,json"]
    world.feed(2)
    old = drivers.start(world.root, "--endless", *sinks, points=f"before-roll=pause:{gate}")
    old.wait_for(gate)  # the roll is staged, and about to be recorded
    world.feed(4)
    run_here(spark, world, *sinks)
    gate.unlink()

    assert old.wait().ending is Ending.FENCED_OUT
    _publish(world)
    check_at_the_end(world, files=4)


@pytest.mark.matrix
@pytest.mark.parametrize("policy", ["bytes", "age", "idle", "rows"])
@pytest.mark.parametrize("formats", [*CLOSING, "csv,orc", "parquet,json", "avro,orc"])
def test_every_policy_and_format_survives_kills(drivers: Children, world: World, policy: str, formats: str) -> None:
    closing = [CLOSING[format_] for format_ in formats.split(",")]
    arguments = ("--small-journal", "--sinks", f"rolling-{policy}-{formats}")
    files = killed_under(policy, drivers, world, closing, arguments, lambda: check_parts_after_a_kill(world))

    _publish(world)
    check_at_the_end(world, files=files)
    check_closed_by_policy(world, policy, formats, files=files)


def _killed(drivers: Children, world: World, chain: Sequence[str], sinks: str) -> int:
    arguments = ("--small-journal", "--sinks", sinks)
    return killed_at_each(drivers, world, chain, arguments, lambda: check_parts_after_a_kill(world))


def _met_by(formats: str, chain: Sequence[str]) -> tuple[str, ...]:
    """The points of a chain, once each; Avro's parts are copied where others are merged, and it is one sink."""
    alone = [point.replace("merge", "copy").replace("manifest@7", "manifest@3") for point in chain]
    return tuple(dict.fromkeys(alone if formats == "avro" else chain))


def _publish(world: World) -> None:
    assert json.loads(publish_what_is_open(str(world.checkpoint)))["checkpoint"] == str(world.checkpoint)
