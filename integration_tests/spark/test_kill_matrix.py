"""Every failpoint, in either way to commit, with one sink and with two, and a second kill in the recovery.

Long: ``make test-matrix``. The chain of ``test_kill_chain.py`` is the short form of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from integration_tests import steps
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.test_kill_chain import OF_CASSANDRA, OF_KAFKA, OF_ROLLING, OF_STATE
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(3600)]

FILES = 8

# What must have happened before a start can come to these.
AFTER_A_KILL_AT = {
    "before-seal": "after-stage@3",
    "after-seal": "after-stage@3",
    "before-abort": "after-stage@3",
    "after-abort": "after-stage@3",
}
# Places of a recovery, for the second kill; whether one comes by them depends on the first.
IN_RECOVERY = ("before-seal", "after-abort", "after-prepared", "after-rename", "before-done")


OF_FILES = ("marker", "manifest")
OF_DELTA = ("table", "log")
CASES = [
    (name, commit, sinks)
    for name, commit, sinks in product(steps.NAMES, ("checkpoint", "eager"), ("1", "2", "delta", "all"))
    if not (name.endswith(OF_FILES) and sinks == "delta") and not (name.endswith(OF_DELTA) and sinks in "12")
    if name not in (*OF_CASSANDRA, *OF_KAFKA, *OF_ROLLING, *OF_STATE)
]


@pytest.mark.parametrize(
    ("name", "commit", "sinks", "again"),
    [(*case, IN_RECOVERY[number % len(IN_RECOVERY)]) for number, case in enumerate(CASES)],
)
def test_two_kills_lose_double_and_show_early_nothing(
    drivers: Children, world: World, name: str, commit: str, sinks: str, again: str
) -> None:
    def check() -> None:
        check_after_a_kill(world, eager=commit == "eager")

    world.feed(FILES)
    kill_twice(drivers, world, ["--commit", commit, "--sinks", sinks], name, again, check)
    check_at_the_end(world, files=FILES)


def kill_twice(
    drivers: Children, world: World, arguments: Sequence[str], name: str, again: str, check: Callable[[], None]
) -> None:
    """Kill a driver at a failpoint and the next one at a place of the recovery; let a third run to its end."""
    arguments = ["--small-journal", *arguments]
    places = [AFTER_A_KILL_AT[name]] if name in AFTER_A_KILL_AT else []
    for place in [*places, name]:
        point, _, hit = place.partition("@")
        killed = drivers.run(world.root, *arguments, points=f"{point}=kill@{hit or 1}")

        assert killed.ending is Ending.KILLED, f"{place}: {killed.output}"
        check()
    recovery = drivers.run(world.root, *arguments, points=f"{again}=kill")
    check()
    last = drivers.run(world.root, *arguments)

    assert recovery.ending in (Ending.KILLED, Ending.DONE), recovery.output
    assert last.ending is Ending.DONE, last.output
