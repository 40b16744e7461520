"""No failpoint is without a kill on either side that ``make test`` makes, of a real process.

A sink's own steps are killed at in a driver with Spark and a real store. Steps of the protocol are the same for every
sink: all of them are killed at without Spark, where thousands of drivers can die, and a sample of them with Spark.

Each chain is said in one file; what is marked ``matrix`` does not count here.
"""

from __future__ import annotations

from collections.abc import Iterable

from integration_tests import steps
from integration_tests.cassandra import test_all_kinds as all_kinds
from integration_tests.cassandra import test_kills as cassandra
from integration_tests.delta import test_kills as delta
from integration_tests.hdfs import test_rolling as rolling_on_hdfs
from integration_tests.kafka_sink import test_kills as kafka
from integration_tests.kafka_sink import test_parts as parts
from integration_tests.kill_matrix import plans
from integration_tests.kill_matrix import rolling as open_rows
from integration_tests.postgres import test_kills as postgres
from integration_tests.spark import test_completion as completion
from integration_tests.spark import test_kill_chain as chain
from integration_tests.spark import test_kill_matrix as matrix
from integration_tests.spark import test_rolling_kills as rolling

ON_LOCAL_DISKS = (*chain.CHAIN, *chain.EAGER_CHAIN, *rolling.CHAIN, *rolling.IDLE_CHAIN, *completion.CHAIN)
ON_SERVERS = (*rolling_on_hdfs.CHAIN, *all_kinds.CHAIN, *cassandra.IN_WORKERS, *delta.CHAIN, *kafka.CHAIN, *parts.CHAIN)
OF_SINKS = {*steps.OF_SINKS}
OF_PROTOCOL = {*steps.OF_PROTOCOL}
# Where an epoch's fate turns, with files and Delta in one writer.
SAMPLE = ("after-prepared", "after-decided", "after-commit")


def names(points: Iterable[str]) -> set[str]:
    return {point.partition("@")[0] for point in points}


def both_sides(steps: Iterable[str]) -> set[str]:
    return {f"{side}-{step}" for step in steps for side in ("before", "after")}


def test_every_step_of_every_sink_is_killed_at_with_spark() -> None:
    assert both_sides(OF_SINKS) - names((*ON_LOCAL_DISKS, *ON_SERVERS)) == set()


def test_every_step_of_postgres_is_killed_at_with_spark() -> None:
    assert {*steps.NAMES_OF_POSTGRES} - names((*postgres.CHAIN, *postgres.IN_WORKERS)) == set()


def test_every_step_of_the_protocol_is_killed_at_without_spark() -> None:
    without_spark = {*plans.REACHABLE, *open_rows.POINTS}  # each of the two sees that it has been everywhere

    assert both_sides(OF_PROTOCOL) - without_spark == set()


def test_a_sample_of_the_protocol_is_killed_at_with_spark() -> None:
    assert {*SAMPLE} - names((*chain.CHAIN, *chain.EAGER_CHAIN)) == set()


def test_the_thread_that_folds_is_killed_with_spark() -> None:
    """At one of its steps; at each in the matrix. Without Spark drivers die at all of them, on both sides."""
    of_folding = {"segment", "segment-merge", "state", "snapshot", "purge"}

    assert {point.partition("-")[2] for point in names(rolling.IN_THE_FOLDING)} == of_folding
    assert {*rolling.IN_THE_FOLDING} & {*rolling.CHAIN} == {"after-segment-merge"}


def test_the_long_matrix_dies_where_the_long_chain_does() -> None:
    """That chain dies at every step that sinks without open parts come to: see its own test."""
    assert {name for name, _, _ in matrix.CASES} == names(chain.LONG_CHAIN)


def test_what_needs_no_server_is_killed_at_without_one() -> None:
    of_servers = {*chain.OF_CASSANDRA, *chain.OF_KAFKA, *rolling.ON_HDFS}

    assert both_sides(OF_SINKS) - of_servers - names(ON_LOCAL_DISKS) == set()


def test_the_steps_of_sinks_and_those_of_the_protocol_are_told_apart() -> None:
    assert {"write", "rename", "keep", "log", "ledger"} <= OF_SINKS
    assert {"generation", "prepared", "roll", "decided", "commit", "done", "purge"} <= OF_PROTOCOL
    assert both_sides(OF_SINKS | OF_PROTOCOL) == {*steps.NAMES}
