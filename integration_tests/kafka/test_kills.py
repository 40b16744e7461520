"""Drivers that read from two growing partitions are killed at one place after the other, on one stream."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from integration_tests.kafka.checks import check_after_a_kill, check_at_the_end, planned
from integration_tests.kafka.topics import PER_TRIGGER, Topic
from integration_tests.spark.audits import check_all_exact
from integration_tests.spark.chains import run_here
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.test_kill_chain import LONG_CHAIN, check_readers_agree
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# What a source can be mistaken about: which offsets were prepared, and which are in one sink but not in all. The steps
# between them are the same whatever the source is.
CHAIN = (
    "after-prepared@2",  # offsets/N is there, commits/N is not
    "before-log@2",  # in all sinks but the last
)
AHEAD = 3 * PER_TRIGGER


@pytest.mark.parametrize("chain", [CHAIN, pytest.param(LONG_CHAIN, marks=pytest.mark.matrix)], ids=["short", "long"])
def test_every_offset_of_two_growing_partitions_is_in_every_sink_once_whenever_drivers_die(
    spark: SparkSession, drivers: Children, world: World, topic: Topic, chain: tuple[str, ...]
) -> None:
    stop = world.root / "stop"
    feeder = drivers.run_module("integration_tests.kafka.feeder", topic.place, str(stop))
    reader = drivers.run_module("integration_tests.spark.reader", str(world.root), str(stop), "kafka")
    arguments = ("--sinks", "all", "--small-journal", "--digest", "--kafka", topic.place)
    for point in chain:
        name, _, hit = point.partition("@")
        before = wait_until_ahead(world, topic)
        ended = drivers.run(world.root, "--endless", *arguments, points=f"{name}=kill@{hit or 1}")

        assert ended.ending is Ending.KILLED, f"{point}: {ended.output}"
        wait_until(partial(grown, topic, before), "both partitions to grow while a driver lives and dies")
        check_after_a_kill(world)
    stop.touch()
    fed, seen = (json.loads(child.wait().output.splitlines()[-1]) for child in (feeder, reader))
    run_here(spark, world, *arguments, "--offsets-per-trigger", "500")

    assert sum(topic.ends().values()) == fed["sent"] > len(chain) * PER_TRIGGER
    check_at_the_end(world, topic, world.first, world.second, world.table)
    check_readers_agree(spark, world)
    check_all_exact(world.checkpoint, sinks=3, rows=fed["sent"])
    assert seen["faults"] == []
    assert seen["looks"] > 20
    assert seen["files"] > len(chain)


def wait_until_ahead(world: World, topic: Topic) -> dict[int, int]:
    """Wait until there is more to read than a driver reads before it dies. Returns where the partitions end."""
    ends = planned(world)
    read = sum(ends[max(ends)].values()) if ends else 0
    wait_until(lambda: sum(topic.ends().values()) >= read + AHEAD, "the feeder to be ahead of the drivers")
    return topic.ends()


def grown(topic: Topic, before: dict[int, int]) -> bool:
    return all(end > before[partition] for partition, end in topic.ends().items())
