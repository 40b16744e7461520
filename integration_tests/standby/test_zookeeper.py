"""The lease in a real ZooKeeper, with drivers that are processes without Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.spark_plugins.standby.judging import Held
from epochal.spark_plugins.standby.zookeeper import ZooKeeperLease
from epochal.testing import servers
from epochal.testing.processes import fork, in_threads
from epochal.testing.servers import ZooKeeperCluster
from epochal.txn.errors import Refused
from tests.spark_plugins.standby.drivers import Ending, Standbys, World, wait_until
from tests.spark_plugins.standby.test_taking_over import exact, is_waiting, leaders, leads

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # needs Java


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperCluster]:
    with servers.zookeeper(own=True) as cluster:
        yield cluster


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def drivers(world: World) -> Iterator[Standbys]:
    made = Standbys(world)
    yield made
    made.end()


def test_one_at_a_time_has_the_lease_and_it_says_who_had_it_last(zookeeper: ZooKeeperCluster) -> None:
    one, other = (ZooKeeperLease(zookeeper.connect, "/one") for _ in range(2))
    elsewhere = ZooKeeperLease(zookeeper.connect, "/two")
    taken = [one.take(), other.take(), one.take(), elsewhere.take()]
    one.note("first")
    held = one.held(), other.held(), one.is_ours(), other.is_ours()
    one.close()  # as a driver does whose query has ended
    after = other.held(), other.take(), other.is_ours()
    other.give_back()
    free = elsewhere.held(), other.held()
    other.close()
    elsewhere.close()

    assert taken == [True, False, True, True]
    assert held == ((Held.OURS, "first"), (Held.THEIRS, "first"), True, False)
    assert after == ((Held.FREE, "first"), True, True)
    assert free == ((Held.OURS, ""), (Held.FREE, "first"))


def test_a_zookeeper_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.spark_plugins.standby.zookeeper.CONNECT", 0.5)

    with pytest.raises(Refused, match=r"ZooKeeper does not answer at 127.0.0.1:1: .* Nothing was started"):
        ZooKeeperLease("127.0.0.1:1", "/one")


def test_the_lease_of_a_process_that_is_gone_is_free_and_of_several_one_gets_it(
    zookeeper: ZooKeeperCluster, tmp_path: Path
) -> None:
    def hold() -> None:
        ZooKeeperLease(zookeeper.connect, "/gone").take()
        (tmp_path / "taken").touch()
        signal.pause()

    pid = fork()
    if not pid:
        hold()
    wait_until((tmp_path / "taken").exists, "the lease to be taken")
    leases = [ZooKeeperLease(zookeeper.connect, "/gone") for _ in range(4)]
    before = [lease.take() for lease in leases]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    after = in_threads([lease.take for lease in leases])
    held = [lease.held()[0] for lease in leases]
    for lease in leases:
        lease.close()

    assert before == [False] * 4
    assert sorted(map(str, after)) == ["False", "False", "False", "True"]
    assert sorted(one.value for one in held) == ["ours", "theirs", "theirs", "theirs"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_takes_over_when_the_session_of_the_driver_has_ended(
    world: World, drivers: Standbys, zookeeper: ZooKeeperCluster, how: signal.Signals
) -> None:
    hosts = zookeeper.connect
    world.feed(1)
    first = drivers.standby(zookeeper=hosts, lease=1000.0)
    wait_until(lambda: world.committed() == {0}, "an epoch")
    others = [drivers.standby(zookeeper=hosts, lease=1000.0) for _ in range(2)]
    wait_until(lambda: all(is_waiting(world, other) for other in others), "the standbys")
    first.signal(how)
    world.feed(2)
    wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
    leading = leaders(world)
    first.signal(signal.SIGCONT)
    ending = first.wait()
    world.fed.unlink()

    assert ending is (Ending.KILLED if how is signal.SIGKILL else Ending.FENCED_OUT)
    assert len(leading) == 2
    assert sorted(other.wait() for other in others) == [Ending.DONE, Ending.LEFT]
    assert world.shown() == exact(2)


def test_a_driver_that_loses_zookeeper_stops_and_nobody_takes_over_until_it_is_back(
    world: World, drivers: Standbys
) -> None:
    with servers.zookeeper(own=True) as mortal:
        world.feed(1)
        first = drivers.standby(zookeeper=mortal.connect)
        wait_until(lambda: world.committed() == {0}, "an epoch")
        second = drivers.standby(zookeeper=mortal.connect, when_ended="take-over")
        wait_until(lambda: is_waiting(world, second), "the standby")
        mortal.nodes[0].kill()
        ending = first.wait()
        leading = leaders(world)
        mortal.nodes[0].start()
        world.feed(2)
        wait_until(lambda: world.committed() == {0, 1}, "the second epoch")
        world.fed.unlink()
        last = second.wait()

    assert ending is Ending.FENCED_OUT
    assert leading == [first.pid]
    assert last is Ending.DONE
    assert world.shown() == exact(2)


def test_a_driver_that_does_not_use_the_lease_is_left_alone_while_it_is_well(
    world: World, drivers: Standbys, zookeeper: ZooKeeperCluster
) -> None:
    world.feed(1)
    first = drivers.driver()
    wait_until(lambda: world.committed() == {0}, "an epoch")
    second = drivers.standby(zookeeper=zookeeper.connect)
    wait_until(lambda: is_waiting(world, second), "the standby")
    world.feed(20)
    wait_until(lambda: world.committed() == set(range(20)), "more epochs")
    before = leaders(world)
    first.signal(signal.SIGKILL)
    world.feed(21)
    wait_until(lambda: leads(world, second), "the takeover")
    wait_until(lambda: world.committed() == set(range(21)), "the last epoch")
    world.fed.unlink()

    assert before == [first.pid]
    assert second.wait() is Ending.DONE
    assert world.shown() == exact(21)
