"""The predicted recovery: its laws, and one figure by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.knobs import Costs
from epochal.spark_plugins.recovery.model import Rates, StoreRates, predicted
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.states import OperatorState, Rows, SparkState, StoreState
from epochal.spark_plugins.recovery.stored import OperatorMetadata

RATES = Rates(
    session=5,
    query=1,
    epoch=2,
    stores={provider: StoreRates(opened=0.5, loaded=1000, replayed=100) for provider in Provider},
    measured="2026-11-18T00:00:00Z",
)


def store(partition: int, *, loaded: int = 0, replayed: int = 0) -> StoreState:
    return StoreState(
        partition=partition,
        store="default",
        provider=Provider.ROCKSDB,
        snapshot=1,
        extent=1,
        snapshot_bytes=loaded,
        replay_bytes=replayed * 10,
        replay_rows=Rows(replayed),
        has_changelog=True,
    )


def state(*stores: StoreState) -> SparkState:
    return SparkState(1, (OperatorState(OperatorMetadata(0, "dedupe", ("default",), len(stores)), stores),))


def test_a_recovery_is_the_sum_of_its_parts() -> None:
    found = predicted(state(store(0, loaded=2000, replayed=300)), RATES, slots=2)

    assert (found.load, found.replay) == (2.5, 3.0)
    assert found.total == 5 + 1 + 2.5 + 3 + 2


def test_partitions_wait_for_a_free_slot() -> None:
    stores = [store(0, replayed=400), store(1, replayed=100), store(2, replayed=100)]

    assert predicted(state(*stores), RATES, slots=2).state == 4.5
    assert predicted(state(*stores), RATES, slots=1).state == 7.5


sizes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=12)


@given(sizes, st.integers(1, 8))
def test_more_slots_never_make_it_slower_than_one_and_the_largest_partition_bounds_it(
    parts: list[tuple[int, int]], slots: int
) -> None:
    stores = [store(number, loaded=loaded, replayed=replayed) for number, (loaded, replayed) in enumerate(parts)]
    alone = [predicted(state(one), RATES, slots=1).state for one in stores]
    found = predicted(state(*stores), RATES, slots=slots).state

    assert max(alone) <= found * (1 + 1e-9)
    assert found <= sum(alone) * (1 + 1e-9)
    assert sum(alone) / slots <= found * (1 + 1e-9)


def test_without_a_count_rows_are_guessed_from_bytes() -> None:
    unknown = StoreState(
        partition=0,
        store="default",
        provider=Provider.ROCKSDB,
        snapshot=None,
        extent=1,
        replay_bytes=1200,
        has_changelog=True,
    )

    assert predicted(state(unknown), RATES, slots=1).replay == 1.0


def test_the_first_commit_without_a_changelog_uploads_a_snapshot() -> None:
    plain = replace(store(0), has_changelog=False)

    added = predicted(state(plain), RATES, slots=1).load - predicted(state(store(0)), RATES, slots=1).load
    assert added == pytest.approx(RATES.uploaded)


def test_rates_are_kept_for_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    assert kept.load() == Rates()
    kept.save(RATES, Costs(rewritten=1e-5))

    assert kept.load_all() == (RATES, Costs(rewritten=1e-5))
    assert kept.load() == RATES


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "stores": {}}', '{"format": 2, "stores": {}}']
)
def test_a_file_of_rates_that_cannot_be_read_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, text: str
) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    kept.place().write_text(text)

    assert kept.load() == Rates()
