"""A server that is killed or stands still in mid-stream holds the stream, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from epochal import CassandraSink, Tuning
from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from epochal.txn.errors import StoreAway
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace, keyspace, stage
from integration_tests.spark.children import Child, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Result = TypeVar("Result")
FILES = 5
# Two threads that write, and writes that are not worth doing any more after 50 ms.
TINY = {
    "concurrent_writes": 2,
    "write_request_timeout": "50ms",
    "native_transport_max_request_data_in_flight": "256KiB",
    "native_transport_max_request_data_in_flight_per_ip": "256KiB",
}


def test_a_server_killed_in_mid_commit_holds_the_stream_until_it_is_back(
    drivers: Children, world: World, mortal_cassandra: CassandraCluster
) -> None:
    with _stopped(drivers, world, mortal_cassandra, "after-rows") as stopped:
        # Rows of an epoch are written, the ledger knows nothing of it.
        (node,) = mortal_cassandra.nodes
        node.kill()
        stopped.go_on()
        _wait_until_held(world)
        node.start()
        ended = stopped.driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        assert " held: epoch " in ended.output
        assert " resumed: " in ended.output
        streams.check_at_the_end(world, stopped.space, files=FILES)


def test_a_server_that_stands_still_for_a_while_loses_and_doubles_nothing(
    drivers: Children, world: World, mortal_cassandra: CassandraCluster
) -> None:
    with _stopped(drivers, world, mortal_cassandra, "before-ledger") as stopped:
        (node,) = mortal_cassandra.nodes
        node.pause()
        stopped.go_on()
        _wait_until_held(world)  # when the driver's request has timed out, after 20 s
        node.resume()
        ended = stopped.driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        streams.check_at_the_end(world, stopped.space, files=FILES)


def test_three_nodes_do_without_one_and_hold_the_stream_without_two(drivers: Children, world: World) -> None:
    with (
        servers.cassandra(nodes=3) as cluster,
        _stopped(drivers, world, cluster, "before-rows", again="before-rows@7", replicas=3) as stopped,
    ):
        _, second, third = cluster.nodes
        second.kill()
        stopped.go_on()
        stopped.wait_again()  # two epochs later: a quorum of two is enough
        assert " held: " not in _log(world)
        third.kill()
        stopped.go_on()
        _wait_until_held(world)
        third.start()
        ended = stopped.driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        assert " resumed: " in ended.output
        streams.check_at_the_end(world, stopped.space, files=FILES)


@pytest.mark.local
def test_an_overloaded_server_drops_writes_and_none_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    rows, buckets = 4_000, 400
    folder = tmp_path / "server"
    with servers.cassandra(settings=TINY, folder=folder) as cluster, keyspace(cluster) as space:
        table = space.table("rows", "id bigint PRIMARY KEY, text text")
        totals = space.table("totals", "bucket bigint PRIMARY KEY, id bigint, n bigint, epochal text")
        plain = space.sink(table, staging=str(tmp_path / "rows"), tuning=Tuning(in_flight=512))
        adding = space.sink(
            totals,
            staging=str(tmp_path / "totals"),
            mode="accumulate",
            totals={"id": "sum", "n": "count"},
            tuning=Tuning(in_flight=512),
        )
        for epoch in range(2):
            ids = spark.range(epoch * rows, (epoch + 1) * rows)
            _write_for_sure(plain, epoch, ids.selectExpr("id", "repeat('x', 500) AS text"))
            _write_for_sure(adding, epoch, ids.selectExpr(f"id % {buckets} AS bucket", "id"))

        assert _dropped(folder / "node1" / "system.log") > 0, "the server was not overloaded: this shows nothing"
        assert {row.id for row in space.execute(f"SELECT id FROM {table}")} == set(range(2 * rows))
        found = {row.bucket: (row.id, row.n) for row in space.execute(f"SELECT * FROM {totals}")}
        assert found == {b: (sum(range(b, 2 * rows, buckets)), 2 * rows // buckets) for b in range(buckets)}


def _write_for_sure(sink: CassandraSink, epoch: int, rows: DataFrame) -> None:
    """As the settler does: a store that is away is tried again, and the commit goes on where it was."""
    attempt, handle = _patiently(lambda: stage(sink, epoch, rows))
    _patiently(lambda: sink.commit(attempt, handle))


def _patiently(work: Callable[[], Result]) -> Result:
    while True:
        with contextlib.suppress(StoreAway):
            return work()


def _dropped(log: Path) -> int:
    """How many writes a server has dropped, by its own log."""
    told = re.compile(r"MUTATION\S* messages were dropped in last \d+ ms: (\d+) internal")
    wait_until(lambda: told.search(log.read_text()), "the server to tell that it has dropped writes", 30)
    return sum(map(int, told.findall(log.read_text())))


class _Stopped:
    """A driver that stands at a gate."""

    def __init__(self, driver: Child, space: Keyspace, gates: list[Path]) -> None:
        self.driver, self.space, self._gates = driver, space, gates

    def go_on(self) -> None:
        self._gates.pop(0).unlink()

    def wait_again(self) -> None:
        self.driver.wait_for(self._gates[0])


@contextlib.contextmanager
def _stopped(
    drivers: Children, world: World, cluster: CassandraCluster, point: str, *, again: str = "", replicas: int = 1
) -> Iterator[_Stopped]:
    """A driver that has written two epochs and stands at a point of the third."""
    with keyspace(cluster, replicas=replicas) as space:
        place = streams.make_tables(space)
        world.feed(FILES)
        gates = [world.root / "gate", world.root / "gate-2"]
        points = f"{point}=pause:{gates[0]}@3"
        if again:
            name, _, hit = again.partition("@")
            points += f";{name}=pause:{gates[1]}@{hit}"
        driver = _start(drivers, world, place, points)
        driver.wait_for(gates[0])
        yield _Stopped(driver, space, gates)


def _log(world: World) -> str:
    return (world.root / "log").read_text()


def _start(drivers: Children, world: World, place: str, points: str) -> Child:
    log = str(world.root / "log")
    return drivers.start(world.root, "--sinks", "cassandra", "--cassandra", place, "--log", log, points=points)


def _wait_until_held(world: World) -> None:
    wait_until(lambda: " held: " in _log(world), "the stream to be held")
