"""Drivers killed around every step of a Kafka sink, beside files and Delta and alone; drivers that stall."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from epochal import EpochWriter
from integration_tests.cassandra import test_all_kinds as all_kinds
from integration_tests.kafka_sink import test_parts as parts
from integration_tests.kafka_sink.checks import (
    check_a_stalled_driver,
    check_after_a_kill,
    check_at_the_end,
    row_of,
    visible,
)
from integration_tests.kafka_sink.conftest import Targets
from integration_tests.kafka_sink.consuming import Target
from integration_tests.spark import checks
from integration_tests.spark.audits import check_all_exact
from integration_tests.spark.chains import Lane, killed_at_each, killed_side_by_side, worlds_below
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending, kafka_sink
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.test_kill_chain import OF_KAFKA, check_readers_agree
from integration_tests.spark.world import ROWS, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Of three sinks (files, Delta, Kafka) the third is Kafka's. Other steps of its own are in test_all_kinds.py of
# Cassandra's folder, and in test_parts.py.
LANES = (
    ("before-send", "after-mark@2"),  # with the mark: nobody reads what follows in epochal's own topic
    ("after-send", "before-mark@2"),  # an open transaction with all messages
)
CHAIN = tuple(point for lane in LANES for point in lane)
LONG_CHAIN = (
    "before-enrol@3",
    "after-enrol@3",
    "before-write@3",
    "after-write@3",
    "after-prepared",
    "before-send",
    "after-send",
    "before-mark",
    "after-mark",
    "before-transaction",
    "after-transaction",
    "before-send@2",
    "after-send@2",
    "after-mark@2",
    "after-transaction@2",
    "before-cleanup@3",
    "after-cleanup@3",
    "after-commit@3",
)
# Of the topic alone.
ALONE = (
    "after-write@2",
    "before-send",
    "after-send",
    "after-mark",
    "after-transaction@2",
    "after-cleanup",
    "before-done",
)


def test_the_chains_have_every_failpoint_of_kafka() -> None:
    everything = (*CHAIN, *all_kinds.CHAIN, *parts.CHAIN)
    long = (*LONG_CHAIN, *parts.OF_DRIVERS, *parts.IN_WORKERS)

    assert {*OF_KAFKA} <= {point.partition("@")[0] for point in everything}
    assert {*OF_KAFKA} <= {point.partition("@")[0] for point in long}


@pytest.mark.parametrize("lanes", [LANES, pytest.param((LONG_CHAIN,), marks=pytest.mark.matrix)], ids=["short", "long"])
def test_a_kill_around_every_step_shows_every_epoch_once_and_none_early(
    spark: SparkSession, drivers: Children, world: World, targets: Targets, lanes: tuple[tuple[str, ...], ...]
) -> None:
    stop, topics = world.root / "stop", [targets() for _ in lanes]
    places = [f"{target.bootstrap}/{target.topic}" for target in topics]
    worlds = worlds_below(world, len(lanes))
    readers = [
        drivers.run_module("integration_tests.kafka_sink.reader", str(one.root), place, str(stop))
        for one, place in zip(worlds, places, strict=True)
    ]

    def check(one: World, target: Target) -> None:
        checks.check_after_a_kill(one)
        check_after_a_kill(one, target)

    arguments = ("--small-journal", "--digest", "--sinks", "topics", "--topic")
    killed = [
        Lane(world=one, chain=chain, arguments=(*arguments, place), check=partial(check, one, target))
        for one, chain, place, target in zip(worlds, lanes, places, topics, strict=True)
    ]
    counts = killed_side_by_side(drivers, killed, spark)
    stop.touch()
    looks = [json.loads(reader.wait().output.splitlines()[-1]) for reader in readers]

    for one, target, files, seen in zip(worlds, topics, counts, looks, strict=True):
        checks.check_at_the_end(one, files=files)
        check_at_the_end(one, target, files=files)
        check_readers_agree(spark, one)
        check_all_exact(one.checkpoint, sinks=3, rows=files * ROWS)
        assert seen["faults"] == []
        assert Counter(map(tuple, seen["rows"])) == all_rows(files)


@pytest.mark.matrix
def test_without_its_marks_an_epoch_that_is_sent_and_not_done_is_not_sent_again(
    drivers: Children, world: World, target: Target
) -> None:
    arguments, place = ("--sinks", "topic", "--topic"), f"{target.bootstrap}/{target.topic}"
    world.feed(1)
    killed = drivers.run(world.root, *arguments, place, points="before-cleanup=kill")
    elsewhere = drivers.run(world.root, *arguments, f"{place}/other-{target.topic[-8:]}")
    between = visible(target)
    again = drivers.run(world.root, *arguments, place)

    assert killed.code == -9, killed.output
    assert "it has no record of this stream any more, and epoch 0 is decided" in elsewhere.output
    assert between == all_rows(1)
    assert again.ending is Ending.DONE, again.output
    check_at_the_end(world, target, files=1)


@pytest.mark.matrix
def test_a_kill_around_every_step_of_a_topic_alone(drivers: Children, world: World, target: Target) -> None:
    arguments = ("--small-journal", "--sinks", "topic", "--topic", f"{target.bootstrap}/{target.topic}")
    files = killed_at_each(drivers, world, ALONE, arguments, lambda: check_after_a_kill(world, target))

    check_at_the_end(world, target, files=files)


def test_nothing_of_an_epoch_is_sent_before_sparks_commit_of_it(
    spark: SparkSession, world: World, target: Target
) -> None:
    world.feed(2)
    writer = EpochWriter(kafka_sink(f"{target.bootstrap}/{target.topic}"))
    seen: list[tuple[bool, set[int], set[int]]] = []

    def batch(rows: DataFrame, epoch: int) -> None:
        writer(rows, epoch)  # all is prepared, and Spark's commits/N comes next
        staged = bool(list(world.checkpoint.glob("epochal-staged/*/*/*")))
        sent = {row_of(message)[1] for message in target.messages(committed=False)}
        seen.append((staged, checks.committed(world), sent))

    to_checkpoint(stream(spark, world), world).foreachBatch(batch).start().awaitTermination()
    writer.settle()

    assert seen == [(True, set(), set()), (True, {0}, {0})]
    check_at_the_end(world, target, files=2)


@pytest.mark.parametrize("point", [pytest.param("before-send", marks=pytest.mark.matrix), "before-transaction"])
def test_a_driver_that_stalled_in_mid_commit_is_shut_out_and_changes_nothing_when_it_wakes(
    spark: SparkSession, drivers: Children, world: World, target: Target, point: str
) -> None:
    check_a_stalled_driver(spark, drivers, world, target, "topic", point)
