"""Servers that are killed, stand still or are overloaded in mid-stream: the stream is held, nothing lost or doubled."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
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


def test_three_nodes_do_without_one_and_hold_the_stream_without_two_killed_or_asleep(
    drivers: Children, world: World
) -> None:
    # In epochs 1, 3 and 4, each in the first of two tables.
    points = ("before-rows@3", "after-rows@7", "before-ledger@9")
    with servers.cassandra(nodes=3) as cluster, _stopped(drivers, world, cluster, points, replicas=3) as stopped:
        _, second, third = cluster.nodes
        second.kill()
        stopped.go_on()
        stopped.wait_again()  # two epochs later: a quorum of two is enough
        assert _times_held(world) == 0
        # Rows of an epoch are written, the ledger knows nothing of it.
        third.kill()
        stopped.go_on()
        wait_until(lambda: _times_held(world) > 0, "the stream to be held")
        third.start()
        stopped.wait_again()
        before = _times_held(world)
        third.pause()
        stopped.go_on()
        wait_until(lambda: _times_held(world) > before, "the driver's request to time out, after 20 s")
        third.resume()
        ended = stopped.driver.wait()

        assert ended.ending is Ending.DONE, ended.output
        assert " resumed: " in ended.output
        streams.check_at_the_end(world, stopped.space, files=FILES)


@pytest.mark.local
@pytest.mark.matrix  # a server of its own, and half a minute until it tells what it has dropped
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
    answer = re.compile(r"MUTATION\S* messages were dropped in last \d+ ms: (\d+) internal")
    wait_until(lambda: answer.search(log.read_text()), "the server to tell that it has dropped writes", 30)
    return sum(map(int, answer.findall(log.read_text())))


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
    drivers: Children, world: World, cluster: CassandraCluster, points: Sequence[str], *, replicas: int
) -> Iterator[_Stopped]:
    """A driver that stands at the first of these points."""
    with keyspace(cluster, replicas=replicas) as space:
        place = streams.make_tables(space)
        world.feed(FILES)
        gates = [world.root / f"gate-{number}" for number in range(len(points))]
        named = [point.partition("@") for point in points]
        pauses = [f"{name}=pause:{gate}@{hit}" for (name, _, hit), gate in zip(named, gates, strict=True)]
        arguments = ("--sinks", "cassandra", "--cassandra", place, "--log", str(world.root / "log"))
        driver = drivers.start(world.root, *arguments, points=";".join(pauses))
        driver.wait_for(gates[0])
        yield _Stopped(driver, space, gates)


def _times_held(world: World) -> int:
    return (world.root / "log").read_text().count(" held: ")
