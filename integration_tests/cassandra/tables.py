"""Keyspaces and tables of the tests, and what a reader of them sees."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy

from epochal import CassandraSink
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.layout import home_of
from epochal.testing.contract import claim_for
from epochal.txn.model import Attempt, Batch, Handle, Outcome
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.testing.servers import CassandraCluster

LINEAGE = "0f0e0d0c-0000-0000-0000-000000000001"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Keyspace:
    """A keyspace of one test's own."""

    name: str
    session: Session
    hosts: tuple[str, ...]
    port: int

    def execute(self, text: str) -> list[Any]:
        """What the server answers; a session that was cut off by a kill is waited for."""
        found: list[Any] = []

        def answered() -> bool:
            try:
                found.extend(self.session.execute(text))
            except NoHostAvailable:
                return False
            return True

        wait_until(answered, "the test's own session to find the server again")
        return found

    def table(self, name: str, columns: str, options: str = "") -> str:
        """Make a table; its full name."""
        self.execute(f"CREATE TABLE {self.name}.{name} ({columns}) {options}")
        return f"{self.name}.{name}"

    def sink(self, table: str, **options: Any) -> CassandraSink:
        return CassandraSink(table, contact_points=self.hosts, port=self.port, **options)


@contextmanager
def keyspace(server: CassandraCluster, *, replicas: int = 1) -> Iterator[Keyspace]:
    """A new keyspace with a session to look into it."""
    # A node that was away may be behind: a quorum is not.
    reads = ExecutionProfile(RoundRobinPolicy(), consistency_level=ConsistencyLevel.LOCAL_QUORUM, request_timeout=60)
    cluster = Cluster(
        list(server.hosts),
        port=server.port,
        protocol_version=5,
        connect_timeout=10,
        reconnection_policy=ConstantReconnectionPolicy(0.5, max_attempts=None),
        execution_profiles={EXEC_PROFILE_DEFAULT: reads},
    )
    name = f"k{os.getpid()}_{next(_numbers)}"
    try:
        session = cluster.connect()
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = "
            f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}} AND durable_writes = true"
        )
        yield Keyspace(name, session, tuple(server.hosts), server.port)
    finally:
        cluster.shutdown()


def stage(sink: CassandraSink, epoch: int, rows: DataFrame, generation: int = 1) -> tuple[Attempt, Handle]:
    """Stage an epoch as the coordinator does."""
    attempt = Attempt(LINEAGE, epoch, generation)
    if not sink.open(LINEAGE).enrolled:
        claim_for(sink, LINEAGE)
    return attempt, sink.stage(Batch(attempt=attempt, rows=rows, offsets=f"{epoch:064x}")).handle


def write(sink: CassandraSink, epoch: int, rows: DataFrame) -> tuple[Attempt, Handle]:
    """Stage and commit an epoch."""
    attempt, handle = stage(sink, epoch, rows)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    return attempt, handle


class Zombie:
    """A commit that passed its checks long ago and writes only now: nothing of the sink's can stop it any more."""

    def __init__(self, sink: CassandraSink, attempt: Attempt, handle: Handle, folder: Path) -> None:
        self._sink, self._attempt, self._epoch = sink, attempt, StagedEpoch.read(handle)
        self._home = Path(home_of(sink._staged.place(attempt.scratch)[1], attempt))
        self._copy = folder / "asleep"
        shutil.copytree(self._home, self._copy)

    def wake(self) -> None:
        shutil.copytree(self._copy, self._home, dirs_exist_ok=True)
        committer = self._sink._committer(self._attempt, self._epoch)
        todo = committer._unwritten(self._attempt, self._epoch)
        assert todo
        committer._run(self._attempt, self._epoch, todo)


def pairs(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "id int, a int, b string") -> DataFrame:
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def seen(space: Keyspace, table: str, columns: str = "id, a, b") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in space.execute(f"SELECT {columns} FROM {table}"))
