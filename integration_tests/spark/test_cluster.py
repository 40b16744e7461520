"""Executors that are processes of their own, and die in the middle of a stage."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyspark
import pytest

from integration_tests.spark.checks import check_at_the_end, visible_files
from integration_tests.spark.children import Children
from integration_tests.spark.cluster import cluster, parent_of
from integration_tests.spark.driver import Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="finds executors in /proc"),
]


def waiting_executors(gate: Path) -> set[int]:
    """The executors on which a task waits at the gate: the parents of the daemons that forked its workers."""
    daemons = {int(path.name.split("-")[-1]) for path in gate.parent.glob(f"{gate.name}.daemon-*")}
    return {parent_of(daemon) for daemon in daemons} - {0}


def test_an_executor_killed_in_mid_stage_loses_and_doubles_nothing(drivers: Children, world: World) -> None:
    gate = world.root / "gate"
    gate.touch()
    world.feed(6)
    with cluster(world.root / "cluster") as running:
        driver = drivers.start(
            world.root, "--master", running.url, "--files-per-trigger", "2", "--slow-gate", str(gate)
        )
        wait_until(lambda: waiting_executors(gate), "a task to wait")
        (victim,) = waiting_executors(gate)
        of_ours = running.executors()
        commands = [Path("/proc", str(pid), "cmdline").read_text() for pid in of_ours]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: waiting_executors(gate) - {victim}, "the task to be tried on another executor")
        seen_meanwhile = visible_files(world.first)
        gate.unlink()
        ended = driver.wait()

    assert victim in of_ours
    assert all("epochal-local-disk" in command for command in commands)
    assert ended.ending is Ending.DONE, ended.output
    assert seen_meanwhile == []
    check_at_the_end(world, files=6)


def home_of_links(folder: Path) -> Path:
    """Spark's own folder as one that its workers may write to: they put their logs beside its jars."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.matrix  # above, and in cassandra/test_submitted.py, they are those of a standalone cluster
def test_executors_of_their_own_write_what_local_threads_write(
    drivers: Children, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.feed(3)
    monkeypatch.setenv("SPARK_HOME", str(home_of_links(world.root / "home")))
    ended = drivers.run(world.root, "--master", "local-cluster[2,1,1024]")

    assert ended.ending is Ending.DONE, ended.output
    check_at_the_end(world, files=3)
