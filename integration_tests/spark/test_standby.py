"""A hot standby with Spark: the driver is killed, the next one is suspended, and every row is there once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from epochal.cli import status as status_command
from epochal.cli.stream_status import read_status
from epochal.cli.streams import open_stream
from epochal.testing import servers
from epochal.testing.servers import ZooKeeperCluster
from epochal.txn.files import LocalFiles
from epochal.txn.live import read_live
from integration_tests.spark.checks import check_at_the_end, committed
from integration_tests.spark.children import Child, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

STANDBY = ("--every", "100 milliseconds", "--sinks", "all", "--standby")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperCluster]:
    with servers.zookeeper(own=True) as cluster:
        yield cluster


def standbys(world: World) -> dict[int, bool]:
    """The pids of those that wait, and whether they are warm: as `epochal status --json` says it."""
    status = read_status(open_stream(str(world.checkpoint), None))
    answer = json.loads(json.dumps(status_command.to_json(status)))
    return {standby["pid"]: standby["ready"] for standby in answer["standbys"]}


def wait_until_ready(world: World, standby: Child) -> None:
    standby.wait_until(lambda: standbys(world).get(standby.pid, False), "the standby to be warm")


def jvm_of(world: World) -> int:
    """The pid of the newest driver's JVM."""
    live = read_live(LocalFiles(), str(world.journal)).live
    assert live is not None
    assert live.jvm is not None
    assert live.jvm.pid is not None
    return live.jvm.pid


@pytest.mark.parametrize(
    ("lease", "suspended"),
    [
        ("checkpoint", "driver"),
        pytest.param("checkpoint", "jvm", marks=pytest.mark.matrix),
        pytest.param("zookeeper", "driver", marks=pytest.mark.matrix),
        pytest.param("zookeeper", "jvm", marks=pytest.mark.matrix),
    ],
)
def test_a_standby_goes_on_when_the_driver_is_killed_and_the_next_when_that_one_is_suspended(
    drivers: Children, world: World, lease: str, suspended: str, request: pytest.FixtureRequest
) -> None:
    kept = () if lease == "checkpoint" else ("--zookeeper", request.getfixturevalue("zookeeper").connect)
    world.feed(2)
    first = drivers.start(world.root, *STANDBY, *kept, "--unwarmed")  # nobody runs the stream: its turn comes at once
    first.wait_until(lambda: committed(world) == {0, 1}, "two epochs")
    second = drivers.start(world.root, *STANDBY, *kept)
    wait_until_ready(world, second)
    os.killpg(first.pid, signal.SIGKILL)
    world.feed(3)
    second.wait_until(lambda: committed(world) == {0, 1, 2}, "an epoch of the second driver")
    waiting = standbys(world)
    third = drivers.start(world.root, *STANDBY, *kept, "--unwarmed")
    wait_until_ready(world, third)
    stop = partial(os.killpg, second.pid) if suspended == "driver" else partial(os.kill, jvm_of(world))
    stop(signal.SIGSTOP)
    world.feed(4)
    third.wait_until(lambda: committed(world) == {0, 1, 2, 3}, "an epoch of the third driver")
    stop(signal.SIGCONT)
    fenced = second.wait()
    world.feed(5)
    third.wait_until(lambda: committed(world) == {0, 1, 2, 3, 4}, "another epoch of the third driver")
    third.interrupt()
    last = third.wait()

    assert waiting == {}
    assert f"standing by for generation 1 (pid {first.pid} on" in fenced.output
    assert f"the standby takes over from generation 1 (pid {first.pid} on" in fenced.output
    assert fenced.ending is Ending.FENCED_OUT, fenced.output
    assert last.ending is Ending.INTERRUPTED, last.output
    assert f"the standby takes over from generation 2 (pid {second.pid} on" in last.output
    check_at_the_end(world, files=5)
