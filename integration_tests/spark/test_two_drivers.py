"""Two drivers on one checkpoint, both real: one stalls, the other takes over, the first wakes up."""

from __future__ import annotations

import os
import platform
import signal
from typing import TYPE_CHECKING

import pytest

from epochal.cli import exit_codes
from epochal.cli.stream_status import read_status
from epochal.cli.streams import open_stream
from epochal.txn.files import LocalFiles
from epochal.txn.live import LiveState, read_live
from integration_tests.spark.chains import run_here
from integration_tests.spark.checks import check_at_the_end, committed, visible_files
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

FILES = 3


@pytest.mark.parametrize(
    ("place", "why", "disk"),
    [
        # In the second epoch: nothing is staged yet. Held at each step, two drivers meet in the matrix without Spark.
        pytest.param("before-write@3", "generation 2 has taken over", "true", marks=pytest.mark.matrix),
        # All of it is staged: by default so in objects/test_files.py.
        pytest.param("after-stage@4", "its attempt was sealed", "true", marks=pytest.mark.matrix),
        ("after-prepared@2", "generation 2 has taken over", "false"),  # with Hadoop's own file system
    ],
)
def test_a_driver_that_stalled_in_mid_epoch_is_fenced_out(
    drivers: Children, world: World, place: str, why: str, disk: str
) -> None:
    conf = ("--conf", f"spark.epochal.localDisk={disk}")
    gate = world.root / "gate"
    name, _, hit = place.partition("@")
    world.feed(FILES)
    stalled = drivers.start(world.root, *conf, points=f"{name}=pause:{gate}@{hit}")
    stalled.wait_for(gate)
    after_stalling = committed(world)
    second = drivers.run(world.root, *conf)
    check_at_the_end(world, files=FILES)
    gate.unlink()
    first = stalled.wait()
    third = drivers.run(world.root, *conf)

    assert after_stalling == {0}
    assert second.ending is Ending.DONE, second.output
    assert first.ending is Ending.FENCED_OUT, first.output
    assert f"epoch 1: generation 1 was superseded: {why}" in first.output
    assert third.ending is Ending.DONE, third.output
    check_at_the_end(world, files=FILES)


def test_a_driver_that_wakes_up_before_sparks_commit_finds_it_taken(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    gate = world.root / "gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, "--gate-after-batch", str(gate), "--unaware")
    stalled.wait_for(gate)
    run_here(spark, world)
    gate.unlink()
    first = stalled.wait()

    assert first.ending is Ending.CONCURRENT_UPDATE, first.output
    check_at_the_end(world, files=FILES)


def test_a_stalled_drivers_rows_are_shown_when_its_commit_comes_before_the_successors(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    first_gate, second_gate = world.root / "first-gate", world.root / "second-gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, "--gate-after-batch", str(first_gate), "--unaware")
    stalled.wait_for(first_gate)
    # The successor has started and cleared what it may. The stalled driver's epoch is not among it.
    successor = drivers.start(world.root, points=f"before-write=pause:{second_gate}")
    successor.wait_for(second_gate)
    assert committed(world) == set()
    first_gate.unlink()
    first = stalled.wait()
    shown = {file.name[5:17] for file in visible_files(world.first)}
    second_gate.unlink()
    second = successor.wait()
    status = status_of(world)
    run_here(spark, world)

    assert first.ending is Ending.FENCED_OUT, first.output
    assert shown == {"000000000000"}
    assert second.ending is Ending.TWO_DRIVERS, second.output
    assert f"another driver wrote to its checkpoint {world.checkpoint} at the same time" in second.output
    assert f"generation 1 (pid {stalled.pid} on {platform.node()}, started 20" in second.output
    assert "then start the query again" in second.output
    assert status[0] == exit_codes.REFUSED
    assert status[1].startswith("STOPPED by TwoDrivers: Spark stopped this query because another driver wrote"), status
    check_at_the_end(world, files=FILES)


ENDLESS = ("--every", "100 milliseconds", "--sinks", "1")


def status_of(world: World) -> tuple[int, str]:
    """The exit code and the first line of `epochal status`."""
    verdict = read_status(open_stream(str(world.checkpoint), None)).verdict
    return verdict.code, verdict.line


def test_a_second_driver_takes_over_and_the_first_ends_by_itself_with_our_error(
    drivers: Children, world: World
) -> None:
    world.feed(2)
    older = drivers.start(world.root, *ENDLESS)
    older.wait_until(lambda: committed(world) == {0, 1}, "two epochs")
    newer = drivers.start(world.root, *ENDLESS, "--takeover-timeout", "60")
    first = older.wait()
    world.feed(4)
    newer.wait_until(lambda: committed(world) == {0, 1, 2, 3}, "two epochs more")
    newer.interrupt()
    second = newer.wait()

    here = platform.node()
    assert first.ending is Ending.FENCED_OUT, first.output
    assert f"generation 2 has taken over. It is pid {newer.pid} on {here}, started 20" in first.output
    assert second.ending is Ending.INTERRUPTED, second.output
    assert f"for another driver to end: generation 1, pid {older.pid} on {here}, started 20" in second.output
    assert f"takes over from generation 1 (pid {older.pid} on {here}) after" in second.output
    assert "it has ended" in second.output
    check_at_the_end(world, files=4)


@pytest.mark.matrix
def test_a_driver_that_was_suspended_over_a_takeover_ends_when_it_wakes_up(drivers: Children, world: World) -> None:
    world.feed(1)
    older = drivers.start(world.root, *ENDLESS)
    older.wait_until(lambda: committed(world) == {0}, "an epoch")
    os.killpg(older.pid, signal.SIGSTOP)
    newer = drivers.start(world.root, *ENDLESS, "--takeover-timeout", "60")
    world.feed(3)
    newer.wait_until(lambda: committed(world) == {0, 1, 2}, "two epochs more")
    os.killpg(older.pid, signal.SIGCONT)
    first = older.wait()
    world.feed(4)
    newer.wait_until(lambda: committed(world) == {0, 1, 2, 3}, "an epoch more")
    newer.interrupt()
    second = newer.wait()

    assert first.ending is Ending.FENCED_OUT, first.output
    assert f"generation 2 has taken over. It is pid {newer.pid} on {platform.node()}" in first.output
    assert second.ending is Ending.INTERRUPTED, second.output
    assert "it hangs, is suspended or cannot be heard from here" in second.output
    check_at_the_end(world, files=4)


@pytest.mark.matrix
def test_a_driver_that_is_killed_while_it_waits_leaves_a_stream_that_a_start_goes_on_with(
    drivers: Children, world: World
) -> None:
    world.feed(1)
    older = drivers.start(world.root, *ENDLESS, "--plain")
    older.wait_until(lambda: committed(world) == {0}, "an epoch")
    os.killpg(older.pid, signal.SIGSTOP)
    newer = drivers.start(world.root, *ENDLESS, "--takeover-timeout", "60")
    newer.wait_until(lambda: is_waiting(world), "the newer one to wait")
    waiting = status_of(world)
    newer.kill()
    newer.wait()
    os.killpg(older.pid, signal.SIGCONT)
    first = older.wait()
    dead = status_of(world)
    world.feed(3)
    third = drivers.run(world.root, "--sinks", "1", "--takeover-timeout", "60")

    here = platform.node()
    assert waiting[0] == exit_codes.WELL
    assert waiting[1].startswith(f"taking over: the driver (pid {newer.pid} on {here}) waits for generation 1")
    assert first.ending is Ending.FAILED, first.output  # Spark's own handle returns without an error
    assert "epochal: the query was stopped: generation 1 was superseded: generation 2 has taken over" in first.output
    assert dead[0] == exit_codes.DEAD
    assert third.ending is Ending.DONE, third.output
    assert "for another driver to end" not in third.output  # nobody is left to wait for
    check_at_the_end(world, files=3)


def is_waiting(world: World) -> bool:
    live = read_live(LocalFiles(), str(world.journal)).live
    return live is not None and live.generation == 2 and live.state is LiveState.WAITING
