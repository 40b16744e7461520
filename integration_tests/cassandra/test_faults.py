"""A server that is killed or stands still in mid-stream holds the stream, and nothing is lost or doubled."""

from __future__ import annotations

import pytest

from epochal.testing.servers import CassandraCluster
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import keyspace
from integration_tests.spark.children import Child, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES = 5


def test_a_server_killed_in_mid_commit_holds_the_stream_until_it_is_back(
    drivers: Children, world: World, mortal_cassandra: CassandraCluster
) -> None:
    with keyspace(mortal_cassandra) as space:
        place = streams.make_tables(space)
        world.feed(FILES)
        gate = world.root / "gate"
        driver = _start(drivers, world, place, f"after-rows=pause:{gate}@3")
        driver.wait_for(gate)  # rows of an epoch are written, the ledger knows nothing of it
        (node,) = mortal_cassandra.nodes
        node.kill()
        gate.unlink()
        _wait_until_held(world)
        node.start()
        ended = driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        assert "commit held, the store does not answer" in ended.output
        assert "commit resumed" in ended.output
        streams.check_at_the_end(world, space, files=FILES)


def test_a_server_that_stands_still_for_a_while_loses_and_doubles_nothing(
    drivers: Children, world: World, mortal_cassandra: CassandraCluster
) -> None:
    with keyspace(mortal_cassandra) as space:
        place = streams.make_tables(space)
        world.feed(FILES)
        gate = world.root / "gate"
        driver = _start(drivers, world, place, f"before-ledger=pause:{gate}@3")
        driver.wait_for(gate)
        (node,) = mortal_cassandra.nodes
        node.pause()
        gate.unlink()
        _wait_until_held(world)  # when the driver's request has timed out, after 20 s
        node.resume()
        ended = driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        streams.check_at_the_end(world, space, files=FILES)


def _start(drivers: Children, world: World, place: str, points: str) -> Child:
    log = str(world.root / "log")
    return drivers.start(world.root, "--sinks", "cassandra", "--cassandra", place, "--log", log, points=points)


def _wait_until_held(world: World) -> None:
    wait_until(lambda: "commit held" in (world.root / "log").read_text(), "the stream to be held")
