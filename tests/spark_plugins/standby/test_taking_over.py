"""Standbys as real processes, without Spark: killed at each step, suspended, with clocks that are wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.txn import failpoints
from epochal.txn.live import live_beside, number_of
from tests.spark_plugins.standby.drivers import FILES, LEASE, Child, Ending, Standbys, World, wait_until

EPOCHS = 3
OF_DRIVERS = failpoints.names("protocol", "directory")
OF_STANDBYS = failpoints.names("standby")
# What a driver meets on two epochs of two sinks that never roll, and on a journal that is short.
NEVER = {
    f"{side}-{step}"
    for step in ("roll", "rolled", "roll-seal", "segment", "segment-merge", "state", "snapshot", "purge")
    for side in ("before", "after")
}
FOR_SUCCESSORS = {f"{side}-{step}" for step in ("seal", "abort") for side in ("before", "after")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def drivers(world: World) -> Iterator[Standbys]:
    made = Standbys(world)
    yield made
    made.end()


def exact(epochs: int) -> dict[str, list[int]]:
    return {"one": list(range(epochs)), "two": list(range(epochs))}


def leads(world: World, child: Child) -> bool:
    return f"{child.pid} leads" in world.said()


def leaders(world: World) -> list[int]:
    return [int(line.split()[0]) for line in world.said() if line.endswith(" leads")]


def is_waiting(world: World, child: Child) -> bool:
    folder = f"{world.checkpoint}/epochal-standby"
    return any(f"-{child.pid}-" in name for name in FILES.names(folder))


def heartbeats(world: World) -> int:
    """The number of the newest live file."""
    numbers = map(number_of, FILES.names(live_beside(f"{world.checkpoint}/epochal")))
    return max((number[1] for number in numbers if number is not None), default=0)


def play(root: Path, leader_dies_at: str, standby_dies_at: str) -> tuple[World, list[Ending]]:
    """A driver and two standbys; the first two die where it is said. Each runs on as far as the others let it."""
    root.mkdir()
    world = World(root)
    drivers = Standbys(world)
    try:
        world.feed(EPOCHS - 1)
        first = drivers.driver(f"{leader_dies_at}=kill")
        wait_until(lambda: first.has_ended() or world.committed() == {0, 1}, "the driver")
        second = drivers.standby(f"{standby_dies_at}=kill" if standby_dies_at else "")
        wait_until(lambda: second.has_ended() or world.committed() == {0, 1}, "the first standby")
        third = drivers.standby()
        wait_until(lambda: world.committed() == {0, 1}, "the first epochs")
        world.feed(EPOCHS)
        wait_until(lambda: world.committed() >= set(range(EPOCHS)), "the last epoch")
        world.fed.unlink()
        return world, [first.wait(), second.wait(), third.wait()]
    finally:
        drivers.end()


def test_whatever_step_the_driver_dies_at_a_standby_goes_on_and_the_rows_are_exact(tmp_path: Path) -> None:
    met = set()
    for number, step in enumerate(OF_DRIVERS):
        world, endings = play(tmp_path / str(number), step, "")

        assert world.shown() == exact(EPOCHS), (step, world.said())
        assert Ending.FAILED not in endings, (step, world.said())
        met |= {step} if endings[0] is Ending.KILLED else set()
    assert {*OF_DRIVERS} - NEVER - FOR_SUCCESSORS == met


def test_whatever_step_the_first_standby_dies_at_the_next_goes_on_and_the_rows_are_exact(tmp_path: Path) -> None:
    met = set()
    for number, step in enumerate((*OF_DRIVERS, *OF_STANDBYS)):
        # The driver leaves an attempt that is staged and not prepared: there is something to seal and to remove.
        world, endings = play(tmp_path / str(number), "after-stage", step)

        assert world.shown() == exact(EPOCHS), (step, world.said())
        assert Ending.FAILED not in endings, (step, world.said())
        met |= {step} if endings[1] is Ending.KILLED else set()
    assert {*OF_DRIVERS, *OF_STANDBYS} - NEVER == met


def test_a_kill_is_noticed_at_once_and_not_after_the_lease(world: World, drivers: Standbys) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() == {0}, "an epoch")
    second = drivers.standby(lease=1000.0)
    wait_until(lambda: is_waiting(world, second), "the standby")
    first.signal(signal.SIGKILL)
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    world.fed.unlink()

    assert second.wait() is Ending.DONE
    assert world.shown() == exact(2)


def test_of_several_standbys_one_takes_over_and_the_others_wait_for_it(world: World, drivers: Standbys) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() == {0}, "an epoch")
    others = [drivers.standby() for _ in range(4)]
    wait_until(lambda: all(is_waiting(world, other) for other in others), "all standbys")
    first.signal(signal.SIGKILL)
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    leading = leaders(world)
    world.fed.unlink()
    endings = [other.wait() for other in others]

    assert len(leading) == 2, "one of the four"
    assert sorted(endings) == [Ending.DONE, Ending.LEFT, Ending.LEFT, Ending.LEFT]
    assert world.shown() == exact(2)


def test_when_nobody_has_run_the_stream_one_of_several_standbys_does(world: World, drivers: Standbys) -> None:
    world.feed(2)
    three = [drivers.standby() for _ in range(3)]
    wait_until(lambda: world.committed() == {0, 1}, "two epochs")
    leading = leaders(world)
    world.fed.unlink()

    assert sorted(child.wait() for child in three) == [Ending.DONE, Ending.LEFT, Ending.LEFT]
    assert len(leading) == 1
    assert world.shown() == exact(2)


def test_a_driver_that_is_suspended_beyond_the_lease_is_fenced_when_it_wakes_up(
    world: World, drivers: Standbys
) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    second = drivers.standby()
    wait_until(lambda: world.committed() == {0} and is_waiting(world, second), "an epoch and the standby")
    first.signal(signal.SIGSTOP)
    world.feed(2)
    wait_until(lambda: leads(world, second), "the takeover")
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    first.signal(signal.SIGCONT)
    ending = first.wait()
    world.feed(3)
    wait_until(lambda: world.committed() == {0, 1, 2}, "the third epoch")
    world.fed.unlink()

    assert ending is Ending.FENCED_OUT
    assert second.wait() is Ending.DONE
    assert world.shown() == exact(3)


@pytest.mark.parametrize(
    ("step", "hit"),  # in the second epoch: each of two sinks stages and commits
    [("before-stage", 3), ("after-stage", 3), ("after-prepared", 2), ("after-commit", 3)],
)
def test_a_driver_that_is_suspended_within_an_epoch_shows_no_row_when_it_wakes_up(
    world: World, drivers: Standbys, step: str, hit: int
) -> None:
    gate = world.root / "gate"
    world.feed(2)
    first = drivers.driver(f"{step}=pause:{gate}@{hit}")
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    second = drivers.standby()
    wait_until(gate.exists, "the driver to stand still")
    first.signal(signal.SIGSTOP)
    wait_until(lambda: leads(world, second) and world.committed() == {0, 1}, "the takeover and both epochs")
    gate.unlink()
    first.signal(signal.SIGCONT)
    ending = first.wait()
    world.fed.unlink()

    assert ending in (Ending.FENCED_OUT, Ending.CONCURRENT_UPDATE)
    assert second.wait() is Ending.DONE
    assert world.shown() == exact(2)


def test_a_standby_that_is_suspended_before_its_claim_looks_again_and_waits_for_the_one_that_was_faster(
    world: World, drivers: Standbys
) -> None:
    gate = world.root / "gate"
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    slow = drivers.standby(f"before-takeover=pause:{gate}")
    wait_until(lambda: world.committed() == {0} and is_waiting(world, slow), "an epoch and the standby")
    first.signal(signal.SIGKILL)
    wait_until(gate.exists, "the standby to decide")
    slow.signal(signal.SIGSTOP)
    fast = drivers.standby()
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    gate.unlink()
    slow.signal(signal.SIGCONT)
    world.feed(3)
    wait_until(lambda: world.committed() == {0, 1, 2}, "the third epoch")
    leading = leaders(world)
    world.fed.unlink()

    assert leading == [first.pid, fast.pid]
    assert (fast.wait(), slow.wait()) == (Ending.DONE, Ending.LEFT)
    assert world.shown() == exact(3)


def test_a_driver_that_wakes_up_before_the_claim_is_left_alone(world: World, drivers: Standbys) -> None:
    gate = world.root / "gate"
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    second = drivers.standby(f"before-takeover=pause:{gate}")
    wait_until(lambda: world.committed() == {0} and is_waiting(world, second), "an epoch and the standby")
    first.signal(signal.SIGSTOP)
    wait_until(gate.exists, "the standby to decide")
    silent = heartbeats(world)
    first.signal(signal.SIGCONT)
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1} and heartbeats(world) > silent, "an epoch and a sign of the driver")
    gate.unlink()
    patient = time.monotonic() + LEASE
    wait_until(lambda: time.monotonic() > patient, "a lease to pass")
    world.fed.unlink()

    assert (first.wait(), second.wait()) == (Ending.DONE, Ending.LEFT)
    assert leaders(world) == [first.pid]
    assert world.shown() == exact(2)


def test_a_standby_that_is_suspended_in_its_claim_claims_nothing_that_another_has_claimed(
    world: World, drivers: Standbys
) -> None:
    gate = world.root / "gate"
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    slow = drivers.standby(f"before-generation=pause:{gate}")
    wait_until(lambda: world.committed() == {0} and is_waiting(world, slow), "an epoch and the standby")
    first.signal(signal.SIGKILL)
    wait_until(gate.exists, "the standby to claim")
    fast = drivers.standby()
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    gate.unlink()
    world.feed(3)
    wait_until(lambda: world.committed() == {0, 1, 2}, "the third epoch")
    leading = leaders(world)
    world.fed.unlink()

    assert leading == [first.pid, fast.pid]
    assert (fast.wait(), slow.wait()) == (Ending.DONE, Ending.LEFT)
    assert world.shown() == exact(3)


@pytest.mark.parametrize("hours", [-1000, 1000])
def test_clocks_that_differ_by_hours_change_nothing(world: World, drivers: Standbys, hours: int) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() >= {0}, "the first epoch")
    second = drivers.standby(clock=lambda: time.time() + hours * 3600)
    wait_until(lambda: world.committed() == {0} and is_waiting(world, second), "an epoch and the standby")
    patient = time.monotonic() + 2 * LEASE
    wait_until(lambda: time.monotonic() > patient, "two leases to pass")
    before = leaders(world)
    first.signal(signal.SIGSTOP)
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    first.signal(signal.SIGCONT)
    ending = first.wait()
    third = drivers.standby()  # its clock is right, that of the one it watches is not
    wait_until(lambda: is_waiting(world, third), "the next standby")
    second.signal(signal.SIGKILL)
    world.feed(3)
    wait_until(lambda: world.committed() == {0, 1, 2}, "the third epoch")
    world.fed.unlink()

    assert before == [first.pid], "nobody takes over from a driver that is well"
    assert ending is Ending.FENCED_OUT
    assert third.wait() is Ending.DONE
    assert world.shown() == exact(3)


def test_a_standby_does_not_go_on_with_a_stream_that_has_ended_in_order_unless_it_is_asked_to(
    world: World, drivers: Standbys
) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() == {0}, "an epoch")
    patient, leaving = drivers.standby(when_ended="wait"), drivers.standby(when_ended="leave")
    wait_until(lambda: is_waiting(world, patient) and is_waiting(world, leaving), "both standbys")
    world.fed.unlink()
    endings = first.wait(), leaving.wait()
    leading = leaders(world)
    world.feed(2)
    eager = drivers.standby(when_ended="take-over")
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    eager.signal(signal.SIGKILL)
    world.feed(3)
    wait_until(lambda: world.committed() == {0, 1, 2}, "the third epoch")
    world.fed.unlink()

    assert endings == (Ending.DONE, Ending.LEFT)
    assert leading == [first.pid]
    assert leaders(world) == [first.pid, eager.pid, patient.pid]
    assert patient.wait() is Ending.DONE


def test_a_standby_leaves_no_file_behind(world: World, drivers: Standbys) -> None:
    world.feed(1)
    first = drivers.driver()
    killed, left = drivers.standby(), drivers.standby()
    wait_until(lambda: world.committed() == {0}, "an epoch")
    wait_until(lambda: is_waiting(world, killed) and is_waiting(world, left), "both standbys")
    killed.signal(signal.SIGKILL)
    killed.wait()
    next_one = drivers.standby()
    wait_until(lambda: is_waiting(world, next_one), "another standby, which sweeps")
    wait_until(lambda: not is_waiting(world, killed), "the notice of the killed one to be swept")
    world.fed.unlink()
    first.wait()
    left.wait()
    next_one.wait()

    assert FILES.names(f"{world.checkpoint}/epochal-standby") == ()
    assert os.path.isdir(live_beside(f"{world.checkpoint}/epochal"))
