"""Two drivers on one checkpoint, both real: one stalls, the other takes over, the first wakes up."""

from __future__ import annotations

import pytest

from integration_tests.spark.checks import check_at_the_end, committed, visible_files
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

FILES = 3


@pytest.mark.parametrize(
    ("place", "why", "disk"),
    [
        # In the second epoch: nothing is staged yet. Held at each step, two drivers meet in the matrix without Spark.
        pytest.param("before-write@3", "generation 2 has taken over", "true", marks=pytest.mark.matrix),
        ("after-stage@4", "its attempt was sealed", "true"),  # all of it is staged
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


def test_a_driver_that_wakes_up_before_sparks_commit_finds_it_taken(drivers: Children, world: World) -> None:
    gate = world.root / "gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, "--gate-after-batch", str(gate))
    stalled.wait_for(gate)
    second = drivers.run(world.root)
    gate.unlink()
    first = stalled.wait()

    assert second.ending is Ending.DONE, second.output
    assert first.ending is Ending.CONCURRENT_UPDATE, first.output
    check_at_the_end(world, files=FILES)


def test_a_stalled_drivers_rows_are_shown_when_its_commit_comes_before_the_successors(
    drivers: Children, world: World
) -> None:
    first_gate, second_gate = world.root / "first-gate", world.root / "second-gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, "--gate-after-batch", str(first_gate))
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
    third = drivers.run(world.root)

    assert first.ending is Ending.FENCED_OUT, first.output
    assert shown == {"000000000000"}
    assert second.ending is Ending.CONCURRENT_UPDATE, second.output
    assert third.ending is Ending.DONE, third.output
    check_at_the_end(world, files=FILES)
