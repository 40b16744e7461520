"""The matrix of integration_tests/spark for Cassandra alone and for all kinds of sinks in one writer.

Long: ``make test-matrix``. The chains of ``test_kills.py`` are the short form of it.
"""

from __future__ import annotations

from itertools import product

import pytest

from integration_tests import steps
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.cassandra.test_kills import IN_WORKERS
from integration_tests.spark import checks
from integration_tests.spark.children import Children
from integration_tests.spark.test_kill_chain import OF_ROLLING
from integration_tests.spark.test_kill_matrix import FILES, OF_DELTA, OF_FILES, kill_twice
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(3600)]

IN_RECOVERY = ("before-seal", "after-abort", "after-prepared", "after-rows", "before-ledger", "before-done")
CASES = [
    (name, commit, sinks)
    for name, commit, sinks in product(steps.NAMES, ("checkpoint", "eager"), ("cassandra", "kinds"))
    if not (name.endswith((*OF_FILES, *OF_DELTA, "rename")) and sinks == "cassandra")
    if name not in OF_ROLLING
    if name not in IN_WORKERS  # a dying worker ends no driver: test_kills.py
]


@pytest.mark.parametrize(
    ("name", "commit", "sinks", "again"),
    [(*case, IN_RECOVERY[number % len(IN_RECOVERY)]) for number, case in enumerate(CASES)],
)
def test_two_kills_lose_double_and_show_early_nothing(
    drivers: Children, world: World, space: Keyspace, name: str, commit: str, sinks: str, again: str
) -> None:
    def check() -> None:
        checks.check_after_a_kill(world, eager=commit == "eager")
        streams.check_after_a_kill(world, space, eager=commit == "eager")

    place = streams.make_tables(space)
    world.feed(FILES)
    kill_twice(drivers, world, ["--commit", commit, "--sinks", sinks, "--cassandra", place], name, again, check)

    checks.check_at_the_end(world, files=FILES)
    streams.check_at_the_end(world, space, files=FILES)
