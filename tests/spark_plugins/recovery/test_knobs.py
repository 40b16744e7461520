"""Settings: the worst extent against a simulated stream, and the choice among plans."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery.chart import draw
from epochal.spark_plugins.recovery.knobs import (
    DELTAS,
    MAINTENANCE,
    MARGIN,
    Costs,
    Load,
    Plan,
    Setting,
    candidates,
    cheapest,
    curve,
    planned,
    quickest,
    worst_extent,
)
from epochal.spark_plugins.recovery.model import Rates
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.planning import propose, spark_settings

LOAD = Load(interval=1.0, updates=10_000, rows=1_000_000, bytes=14e6)


def simulated(setting: Setting, interval: float, *, phase: float = 0.0, versions: int = 400) -> int:
    """The largest extent of a stream that commits regularly, once its first snapshot is there."""
    worst, snapshot, taken, rounds = 0, 0, 0, 1
    for version in range(1, versions):
        at = version * interval
        while phase + rounds * setting.maintenance <= at:  # a round of maintenance before this commit
            rounds += 1
            done = version - 1
            if setting.provider is Provider.ROCKSDB:
                snapshot = taken
            elif done - snapshot > setting.deltas:
                snapshot = done
        if setting.provider is Provider.ROCKSDB and version - taken >= setting.deltas:
            taken = version
        if snapshot:
            worst = max(worst, version - snapshot)
    return worst


@given(
    st.sampled_from(Provider),
    st.sampled_from(DELTAS),
    st.sampled_from(MAINTENANCE),
    st.sampled_from([0.5, 1.0, 2.5, 7.0, 30.0]),
    st.floats(0, 60),
)
def test_no_stream_has_more_to_replay_than_the_worst_extent(
    provider: Provider, deltas: int, maintenance: float, interval: float, phase: float
) -> None:
    setting = Setting(provider=provider, changelog=True, deltas=deltas, maintenance=maintenance, partitions=4)

    assert simulated(setting, interval, phase=phase) <= worst_extent(setting, interval)


@pytest.mark.parametrize("provider", Provider)
@pytest.mark.parametrize(("deltas", "maintenance"), [(10, 60.0), (2, 10.0), (50, 5.0)])
def test_the_worst_extent_is_nearly_reached(provider: Provider, deltas: int, maintenance: float) -> None:
    setting = Setting(provider=provider, changelog=True, deltas=deltas, maintenance=maintenance, partitions=4)
    reached = max(simulated(setting, 1.0, phase=phase / 3) for phase in range(30))

    assert worst_extent(setting, 1.0) <= 1.25 * reached + 2


def test_without_a_changelog_nothing_is_replayed() -> None:
    assert worst_extent(Setting(provider=Provider.ROCKSDB, changelog=False), 1.0) == 0


def plans(load: Load = LOAD) -> list[Plan]:
    return [planned(setting, load, Rates(), Costs(), slots=2) for setting in candidates([4])]


def test_a_snapshot_costs_more_and_makes_recovery_shorter() -> None:
    often = Setting(provider=Provider.ROCKSDB, changelog=True, deltas=1, maintenance=5, partitions=4)
    rare = replace(often, maintenance=60.0)
    one, other = (planned(setting, LOAD, Rates(), Costs(), slots=2) for setting in (often, rare))

    assert one.seconds < other.seconds
    assert one.cpu > other.cpu


@given(st.floats(1, 100))
def test_the_cheapest_plan_holds_the_objective_and_no_cheaper_one_does(objective: float) -> None:
    found = cheapest(plans(), objective)
    holding = [plan for plan in plans() if plan.seconds <= objective * MARGIN]

    assert (found is None) == (not holding)
    if found is not None:
        assert found in holding
        assert round(found.cpu, 4) == min(round(plan.cpu, 4) for plan in holding)


@given(st.floats(0.001, 1))
def test_the_quickest_plan_is_within_the_budget(budget: float) -> None:
    found = quickest(plans(), budget)

    if found is not None:
        assert found.cpu <= budget
        assert all(plan.seconds >= found.seconds - 0.01 for plan in plans() if plan.cpu <= budget)


def test_the_curve_has_no_plan_that_another_beats_in_both() -> None:
    best = curve(plans())

    assert [plan.cpu for plan in best] == sorted(plan.cpu for plan in best)
    assert [plan.seconds for plan in best] == sorted((plan.seconds for plan in best), reverse=True)


@given(st.floats(0.1, 60), st.integers(0, 10**6), st.integers(0, 10**8), st.integers(1, 400), st.floats(1, 500))
def test_a_plan_of_any_load_adds_up(interval: float, updates: int, rows: int, partitions: int, skew: float) -> None:
    load = Load(interval=interval, updates=updates, rows=rows, bytes=rows * 14.0, skew=skew)
    for provider in Provider:
        plan = planned(Setting(provider=provider, partitions=partitions), load, Rates(), Costs(), slots=2)
        assert plan.seconds > 0
        assert plan.cpu >= 0


def test_a_setting_is_the_same_after_json() -> None:
    setting = Setting(provider=Provider.HDFS_BACKED, deltas=3, maintenance=7.5, partitions=9)

    assert Setting.from_json(json.loads(json.dumps(setting.to_json()))) == setting
    assert Setting.from_json(setting.to_json()).provider is Provider.HDFS_BACKED


def test_a_proposal_names_sparks_settings() -> None:
    current = Setting(provider=Provider.ROCKSDB, changelog=True, partitions=4)
    found = propose(LOAD, current, Rates(), Costs(), cores=2, objective=60.0)

    assert found.chosen is not None
    named = spark_settings(found.chosen.setting)
    assert all(key.startswith("spark.sql.streaming.stateStore.") for key in named)
    assert propose(LOAD, current, Rates(), Costs(), cores=2, objective=0.1).chosen is None


def test_a_chart_shows_names_as_text() -> None:
    shown = draw("a < b", {"<script>": [(0, 1), (2, 3)], "one": [(1, 1)]}, "x & y", "s")

    assert "<script>" not in shown
    assert shown.count("<polyline") == 1
    assert shown.count("<circle") == 3


def test_a_logarithmic_chart_sets_factors_apart_by_equal_distances() -> None:
    shown = draw("t", {"a": [(10, 1), (1000, 1), (100_000, 1)]}, "x", "y", logarithmic=True)
    places = [float(text.split('"')[0]) for text in shown.split('<circle cx="')[1:]]

    assert places[1] - places[0] == places[2] - places[1] > 0
