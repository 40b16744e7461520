"""Two drivers on one checkpoint: whatever the one does while the other stands still, nobody is harmed."""

from __future__ import annotations

import pytest

from integration_tests.kill_matrix.plans import POINTS
from integration_tests.kill_matrix.test_kill_matrix import sampled
from integration_tests.kill_matrix.workers import play, report

pytestmark = pytest.mark.timeout(900)

# What a driver that starts on nothing, for two epochs, has no occasion for.
NEEDS_A_PAST = {f"{side}-{step}" for step in ("seal", "abort", "snapshot", "purge") for side in ("before", "after")}


@sampled
def test_a_driver_held_at_any_step_while_another_runs_to_the_end_harms_nothing_and_stops(every: int) -> None:
    result = play("holds", every)

    assert not result.faults, report(result)
    assert set(result.holds) == set(POINTS)
    assert {"FENCED_OUT", "CONCURRENT_UPDATE"} <= set(result.endings)


@sampled
def test_two_drivers_held_at_any_two_steps_harm_nothing(every: int) -> None:
    result = play("pairs", every)

    assert not result.faults, report(result)
    assert set(result.holds) == set(POINTS) - NEEDS_A_PAST
    assert {"FENCED_OUT", "CONCURRENT_UPDATE"} <= set(result.endings)


@sampled
def test_drivers_that_race_freely_harm_nothing(every: int) -> None:
    result = play("races", every)

    assert not result.faults, report(result)
    assert {"DONE", "FENCED_OUT"} <= set(result.endings)
