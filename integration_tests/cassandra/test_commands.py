"""The command line on a stream into Cassandra, without Spark: what is in doubt is shown, what is decided finished."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark.chains import run_here
from integration_tests.spark.children import REPOSITORY, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


DEAD = 5  # what `status` returns: the driver was killed


def epochal(world: World, command: str, *, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", command, str(world.checkpoint), "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_status_tells_what_waits_in_each_table_and_recover_finishes_it(
    spark: SparkSession, drivers: Children, world: World, space: Keyspace
) -> None:
    arguments = ("--sinks", "cassandra", "--cassandra", streams.make_tables(space))
    world.feed(3)
    # Of epoch 1 the first table has all its rows and its ledger, the second has its rows alone.
    killed = drivers.run(world.root, *arguments, points="before-ledger=kill@4")
    assert killed.ending is Ending.KILLED, killed.output

    before = epochal(world, "status", code=DEAD)
    assert before["held"] == [{"epoch": 1, "generation": 1, "sinks": {"rows": "visible", "totals": "waiting"}}]
    assert [(sink["name"], sink["type"], sink["last"]) for sink in before["sinks"]] == [
        ("rows", "cassandra", 1),
        ("totals", "cassandra", 0),
    ]

    recovered = epochal(world, "recover")
    assert [(commit["sink"], commit["epoch"]) for commit in recovered["commits"]] == [("rows", 1), ("totals", 1)]
    assert streams.totals(space) == streams.expected_totals(2)
    assert epochal(world, "status", code=DEAD)["settled"]

    # The next one dies with epoch 2 prepared: it is in doubt, and nobody may touch it but Spark.
    killed = drivers.run(world.root, *arguments, points="after-prepared=kill")
    assert killed.ending is Ending.KILLED, killed.output
    (doubt,) = epochal(world, "status", code=DEAD)["in_doubt"]
    assert (doubt["epoch"], doubt["rows"]) == (2, {"rows": 6, "totals": 6})
    assert epochal(world, "recover")["in_doubt"] == [2]
    assert streams.totals(space) == streams.expected_totals(2)

    run_here(spark, world, *arguments)
    streams.check_at_the_end(world, space, files=3)
