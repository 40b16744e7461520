"""Drivers are killed, for real, at every step of the protocol and again in the recovery from it.

Without Spark: a stand-in keeps its order of checkpoint files, so that a driver lives for some
milliseconds and thousands can be killed. Run with ``-s`` to see how many.
"""

from __future__ import annotations

import pytest

from integration_tests import steps
from integration_tests.kill_matrix.cases import CHANGE
from integration_tests.kill_matrix.plans import OF_OTHER_SINKS, POINTS, REACHABLE, STEPS_OF_OTHER_SINKS
from integration_tests.kill_matrix.workers import play, report

pytestmark = pytest.mark.timeout(900)

# Every so many of what a plan combines; the whole of it is part of the long matrix.
sampled = pytest.mark.parametrize(
    "every", [pytest.param(4, id="sample"), pytest.param(1, id="whole", marks=pytest.mark.matrix)]
)


@sampled
def test_a_kill_at_any_failpoint_and_another_in_the_recovery_leave_every_epoch_exactly_once(every: int) -> None:
    result = play("failpoint_kills", every)

    assert not result.faults, report(result)
    assert set(result.kills) == set(POINTS), "a failpoint that is never killed at proves nothing"
    assert sum(result.kills.values()) >= 2000 // every
    assert result.looks > 1000 // every, "the readers saw nothing"


@sampled
def test_a_kill_before_any_change_of_the_disk_and_another_in_the_recovery_leave_every_epoch_exactly_once(
    every: int,
) -> None:
    result = play("change_kills", every)

    assert not result.faults, report(result)
    assert result.kills[CHANGE] >= 1000 // every


@sampled
def test_many_kills_in_a_row_leave_every_epoch_exactly_once(every: int) -> None:
    result = play("chains", every)

    assert not result.faults, report(result)
    assert sum(result.kills.values()) >= 180 // every


def test_the_failpoints_that_this_matrix_does_not_reach_are_those_of_other_sinks() -> None:
    missing = set(steps.NAMES) - set(REACHABLE)

    assert missing == set(OF_OTHER_SINKS)
    assert {name.partition("-")[2] for name in missing} == {*STEPS_OF_OTHER_SINKS}
