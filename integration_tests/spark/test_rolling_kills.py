"""Drivers killed around every step of parts that stay open over epochs, by every policy and format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from integration_tests.spark.checks import check_at_the_end, check_parts_after_a_kill, planned, visible_files
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

AHEAD = 6
# Those of the protocol have their own chains. With @N the kill comes in a later epoch of the run.
CHAIN = (
    "after-write@2",
    "before-merge",
    "after-merge",
    "before-copy",
    "after-copy",
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


def test_kills_around_every_step_of_open_parts_lose_and_double_nothing(drivers: Children, world: World) -> None:
    files = _killed(drivers, world, CHAIN, "rolling-rows-parquet,json")

    _publish_what_is_open(world)
    check_at_the_end(world, files=files)
    assert len(visible_files(world.first)) <= files  # one in 3 epochs, in each of 3 buckets; without rolling, 3 each


@pytest.mark.parametrize("policy", ["bytes", "age", "idle"])
@pytest.mark.parametrize("formats", ["csv,orc", "parquet,json"])
def test_every_policy_and_format_survives_kills(drivers: Children, world: World, policy: str, formats: str) -> None:
    chain = ("after-write@3", "after-prepared@3", "before-keep@2", "before-manifest@4", "before-cleanup@3")
    files = _killed(drivers, world, chain, f"rolling-{policy}-{formats}")

    _publish_what_is_open(world)
    check_at_the_end(world, files=files)


def _killed(drivers: Children, world: World, chain: Sequence[str], sinks: str) -> int:
    """Start and kill once for each place, then run to the end. Returns how many files there were."""
    arguments = ["--small-journal", "--sinks", sinks]
    for point in chain:
        name, _, hit = point.partition("@")
        files = len(planned(world)) + AHEAD
        world.feed(files)
        ended = drivers.run(world.root, *arguments, points=f"{name}=kill@{hit or 1}")

        assert ended.ending is Ending.KILLED, f"{point}: {ended.output}"
        check_parts_after_a_kill(world)
    ended = drivers.run(world.root, *arguments)

    assert ended.ending is Ending.DONE, ended.output
    return files


def _publish_what_is_open(world: World) -> None:
    command = [sys.executable, "-m", "epochal.cli", "roll", str(world.checkpoint), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["published"]
