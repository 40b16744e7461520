"""Knobs from objectives: what holds a recovery time with the least work, and what fits a share of a processor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.state.gauge import Gauge
from epochal.txn.state.policy import EPOCHS, LEAST_EPOCHS, RATIOS, Extent, Knobs, Measured, Policy

rates = st.floats(1e3, 1e7)


def worst(knobs: Knobs, measured: Measured) -> float:
    """The longest recovery under these knobs: just before a merge, and just before records are folded."""
    entries = measured.live / (1 - knobs.dirty_ratio)
    return entries / measured.restored + 2 * knobs.epochs * measured.record / measured.decoded


@given(st.floats(0.05, 10), rates, rates, st.integers(0, 5_000_000), st.floats(0, 1e6))
def test_the_longest_recovery_is_within_the_objective_wherever_that_is_possible(
    seconds: float, restored: float, decoded: float, live: int, record: float
) -> None:
    measured = Measured(restored=restored, decoded=decoded, live=live, record=record)
    knobs = Policy(recovery=seconds).tuned(measured)
    least = worst(Knobs(dirty_ratio=RATIOS[0], epochs=LEAST_EPOCHS), measured)

    assert worst(knobs, measured) <= seconds or worst(knobs, measured) == pytest.approx(least) or least > 0.4 * seconds
    assert RATIOS[0] <= knobs.dirty_ratio <= RATIOS[1]
    assert LEAST_EPOCHS <= knobs.epochs <= EPOCHS


def test_more_live_entries_leave_less_room_for_dirty_ones() -> None:
    ratios = [Policy(recovery=1.0).tuned(Measured(live=live)).dirty_ratio for live in (0, 100_000, 300_000, 10**7)]

    assert ratios == sorted(ratios, reverse=True)
    assert (ratios[0], ratios[-1]) == (RATIOS[1], RATIOS[0])


def test_large_records_are_folded_sooner() -> None:
    small, large = (Policy(recovery=0.5).tuned(Measured(record=size)).epochs for size in (1e3, 1e6))

    assert (small, large) == (EPOCHS, LEAST_EPOCHS)


def test_a_share_of_the_processor_buys_the_smallest_ratio_that_it_pays_for() -> None:
    measured = Measured(changed=1000, merged=10e-6)  # each change costs 10 us / ratio

    assert Policy(cpu=0.02).tuned(measured).dirty_ratio == pytest.approx(0.5)
    assert Policy(cpu=0.10).tuned(measured).dirty_ratio == pytest.approx(0.1)
    assert Policy(cpu=0.001).tuned(measured).dirty_ratio == RATIOS[1]


def test_fixed_knobs_stay_as_they_are() -> None:
    knobs = Knobs(dirty_ratio=0.66, segment_age=1.0, retention=0.1)

    assert Policy(knobs=knobs).tuned(Measured(live=10**9, changed=1e9)) == knobs


def test_replay_is_what_is_read_beyond_the_live_entries() -> None:
    extent = Extent(live=100, entries=150, bytes=1, segments=2, epochs=7, changes=30, record_bytes=10**6)

    assert extent.replay == 80
    assert extent.predicted(Measured(restored=1000, decoded=1e7)) == pytest.approx(0.25)


def test_what_is_measured_replaces_the_guess_at_once_and_is_smoothed_later() -> None:
    now = [0.0]
    gauge = Gauge(lambda: now[0])
    with gauge.restoring(10_000):
        now[0] = 0.01
    first = gauge.measured.restored
    with gauge.restoring(10_000):
        now[0] = 0.03
    gauge.changed(500)
    now[0] = 1.0
    gauge.sized(live=70, record=123.0)

    assert [first, gauge.recovery] == pytest.approx([1e6, 0.02])
    assert gauge.measured.restored == pytest.approx(850_000)
    assert (gauge.measured.live, gauge.measured.record) == (70, 123.0)
    assert gauge.measured.changed == pytest.approx(500)
