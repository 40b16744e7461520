"""Files, Delta, Cassandra, PostgreSQL and Kafka in one writer: five kinds of stores on the same whole epoch.

They are killed here because Cassandra takes longest to start, and the tests of this folder have one.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from epochal.testing.servers import CassandraCluster, KafkaCluster, PostgresServer
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace, keyspace
from integration_tests.kafka_sink import checks as topics
from integration_tests.kafka_sink.consuming import Target
from integration_tests.postgres import streams as tables
from integration_tests.postgres.tables import Space, space_on
from integration_tests.spark import checks
from integration_tests.spark.chains import Lane, killed_side_by_side, worlds_below
from integration_tests.spark.children import Children
from integration_tests.spark.test_kill_chain import check_readers_agree
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# Of seven sinks: files, Delta, two tables of Cassandra's, two of PostgreSQL's, a topic. A step that several have is hit
# in this order. Where nothing durable lies between two places, as between a table's ledger and its cleanup, one of them
# has its turn.
LANES = (
    # The first two are staged, of the stores with two phases of their own none is.
    ("before-write@3", "after-rows", "before-ledger@2"),
    # At the last all but PostgreSQL's second table and the topic have it.
    ("before-rows", "after-ledger", "after-shown"),
    # All but the topic have it, whose messages are in an open transaction.
    ("before-transaction", "after-transaction", "after-rows@2"),
)
CHAIN = tuple(point for lane in LANES for point in lane)
# Of a stream with dead letters, by default in the same drivers. At the second place rows are written, and the letters
# are shown in another commit.
LETTERS = ("after-prepared", "before-ledger", "after-rename")
LONG_CHAIN = (
    "after-enrol@7",
    *CHAIN,
    "after-write@5",
    "after-attempt",
    "before-prepared",
    "after-prepared",
    "after-decided",
    "before-rename",
    "after-manifest",
    "before-log",
    "after-log",
    "after-cleanup@4",
    "before-shown",
    "after-filed@2",
    "after-shown@2",
    "before-send",
    "after-send",
    "after-mark@2",
    "after-transaction@2",
    "before-cleanup@5",
    "after-commit@7",
    "before-done",
)


@dataclass(frozen=True, slots=True)
class Stores:
    """What one stream writes to, beside the folders of its world."""

    world: World
    space: Keyspace
    schema: Space
    target: Target

    @property
    def place(self) -> str:
        return f"{self.target.bootstrap}/{self.target.topic}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The driver's options for them; this makes the tables."""
        tables_of = ("--cassandra", streams.make_tables(self.space), "--postgres", tables.make_tables(self.schema))
        return ("--small-journal", "--sinks", "all-kinds", *tables_of, "--topic", self.place)

    def check(self) -> None:
        checks.check_after_a_kill(self.world)
        streams.check_after_a_kill(self.world, self.space)
        tables.check_after_a_kill(self.world, self.schema)
        topics.check_after_a_kill(self.world, self.target)

    def check_at_the_end(self, *, files: int) -> None:
        checks.check_at_the_end(self.world, files=files)
        streams.check_at_the_end(self.world, self.space, files=files)
        tables.check_at_the_end(self.world, self.schema, files=files)
        topics.check_at_the_end(self.world, self.target, files=files)


@pytest.mark.parametrize(
    ("lanes", "letters"),
    [(LANES, LETTERS), pytest.param((LONG_CHAIN,), (), marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def test_a_kill_around_every_step_leaves_five_kinds_of_stores_on_the_same_whole_epoch(
    spark: SparkSession,
    drivers: Children,
    world: World,
    cassandra: CassandraCluster,
    postgres: PostgresServer,
    broker: KafkaCluster,
    lanes: tuple[tuple[str, ...], ...],
    letters: tuple[str, ...],
) -> None:
    """By default a stream with dead letters dies beside the others: its output and they are the input."""
    with ExitStack() as stack:

        def stores(one: World) -> Stores:
            name = f"all-kinds-{uuid.uuid4().hex[:8]}"
            broker.create_topic(name, partitions=2)
            space, schema = stack.enter_context(keyspace(cassandra)), stack.enter_context(space_on(postgres))
            return Stores(one, space, schema, Target(broker.bootstrap, name))

        kinds, stop = [stores(one) for one in worlds_below(world, len(lanes))], world.root / "stop"
        readers = [
            drivers.run_module("integration_tests.kafka_sink.reader", str(one.world.root), one.place, str(stop))
            for one in kinds
        ]
        killed = [
            Lane(world=one.world, chain=chain, arguments=one.arguments, check=one.check)
            for one, chain in zip(kinds, lanes, strict=True)
        ]
        if letters:
            besides = stack.enter_context(keyspace(cassandra))
            killed.append(lane_of_letters(world, besides, letters))
        counts = killed_side_by_side(drivers, killed, spark)
        stop.touch()
        looks = [json.loads(reader.wait().output.splitlines()[-1]) for reader in readers]

        if letters:
            check_letters(world, besides, files=counts.pop())
        for one, files, seen in zip(kinds, counts, looks, strict=True):
            one.check_at_the_end(files=files)
            check_readers_agree(spark, one.world)
            assert seen["faults"] == []
            assert Counter(map(tuple, seen["rows"])) == all_rows(files)


def lane_of_letters(world: World, space: Keyspace, chain: tuple[str, ...]) -> Lane:
    def check() -> None:
        letters = checks.visible_rows(world.second)
        rows = streams.visible(space, "kinds") + letters
        assert not checks.early(world, {row[1] for row in rows})
        assert max(rows.values(), default=1) == 1
        assert all(kind == "" for _, _, kind, _ in letters)

    arguments = ("--small-journal", "--sinks", "letters", "--cassandra", streams.make_tables(space))
    return Lane(world=world, chain=chain, arguments=arguments, check=check)


def check_letters(world: World, space: Keyspace, *, files: int) -> None:
    """Output and dead letters are the input."""
    rows, letters = streams.visible(space, "kinds"), checks.visible_rows(world.second)

    assert rows + letters == all_rows(files)
    assert letters
    assert checks.leftovers(world.second) == []
