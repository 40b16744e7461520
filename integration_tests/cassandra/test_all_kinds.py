"""Files, Delta, Cassandra, PostgreSQL and Kafka in one writer: five kinds of stores on the same whole epoch.

They are killed here because Cassandra takes longest to start, and the tests of this folder have one.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from epochal.testing import servers
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.kafka_sink import checks as topics
from integration_tests.kafka_sink.consuming import Target
from integration_tests.postgres import streams as tables
from integration_tests.postgres.tables import Space, space_on
from integration_tests.spark import checks
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.children import Children
from integration_tests.spark.test_kill_chain import check_readers_agree
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# Of seven sinks: files, Delta, two tables of Cassandra's, two of PostgreSQL's, a topic. A step that several have is hit
# in this order. Where nothing durable lies between two places, as between a table's ledger and its cleanup, one of them
# has its turn.
CHAIN = (
    "before-write@3",  # the first two are staged, of the stores with two phases of their own none is
    "before-rows",
    "after-rows",
    "after-ledger",
    "before-ledger@2",
    "after-shown",  # all but PostgreSQL's second table and the topic have it
    "before-transaction",  # all but the topic have it, whose messages are in an open transaction
    "after-transaction",
)
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


@pytest.fixture
def target() -> Iterator[Target]:
    with servers.kafka(own=True) as broker:
        name = f"all-kinds-{uuid.uuid4().hex[:8]}"
        broker.create_topic(name, partitions=2)
        yield Target(broker.bootstrap, name)


@pytest.fixture
def schema() -> Iterator[Space]:
    with ExitStack() as opened:
        yield opened.enter_context(space_on(opened.enter_context(servers.postgres())))


@pytest.mark.parametrize("chain", [CHAIN, pytest.param(LONG_CHAIN, marks=pytest.mark.matrix)], ids=["short", "long"])
def test_a_kill_around_every_step_leaves_five_kinds_of_stores_on_the_same_whole_epoch(
    spark: SparkSession,
    drivers: Children,
    world: World,
    space: Keyspace,
    schema: Space,
    target: Target,
    chain: tuple[str, ...],
) -> None:
    stop, place = world.root / "stop", f"{target.bootstrap}/{target.topic}"
    reader = drivers.run_module("integration_tests.kafka_sink.reader", str(world.root), place, str(stop))

    def check() -> None:
        checks.check_after_a_kill(world)
        streams.check_after_a_kill(world, space)
        tables.check_after_a_kill(world, schema)
        topics.check_after_a_kill(world, target)

    places = ("--cassandra", streams.make_tables(space), "--postgres", tables.make_tables(schema), "--topic", place)
    files = killed_at_each(drivers, world, chain, ("--small-journal", "--sinks", "all-kinds", *places), check)
    stop.touch()
    seen = json.loads(reader.wait().output.splitlines()[-1])

    checks.check_at_the_end(world, files=files)
    streams.check_at_the_end(world, space, files=files)
    tables.check_at_the_end(world, schema, files=files)
    topics.check_at_the_end(world, target, files=files)
    check_readers_agree(spark, world)
    assert seen["faults"] == []
    assert Counter(map(tuple, seen["rows"])) == all_rows(files)
