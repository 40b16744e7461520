"""What is measured explains the recoveries that it was measured by."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.spark_plugins.recovery import calibration
from epochal.spark_plugins.recovery.calibration import EPOCHS, FEW, MANY, SMALL, Measured, costs_of, rates_of
from epochal.spark_plugins.recovery.model import Rates, StoreRates, predicted
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.scratch import Scratch
from epochal.spark_plugins.recovery.states import OperatorState, Rows, SparkState, StoreState
from epochal.spark_plugins.recovery.stored import OperatorMetadata
from epochal.txn.errors import Refused

CORES, ROWS = 2, 200_000
TRUE = Rates(
    session=6.0,
    query=2.0,
    epoch=1.5,
    stores={
        Provider.ROCKSDB: StoreRates(opened=0.1, loaded=5e6, replayed=50_000),
        Provider.HDFS_BACKED: StoreRates(opened=0.02, loaded=1e6, replayed=80_000),
    },
    uploaded=0.05,
    measured="2026-11-18T00:00:00Z",
)


def state(provider: Provider, partitions: int, *, rows: int = 0, size: int = 0, changelog: bool = True) -> SparkState:
    stores = tuple(
        StoreState(
            partition=partition,
            store="default",
            provider=provider,
            snapshot=None,
            extent=5,
            snapshot_bytes=size // partitions,
            replay_rows=Rows(rows // partitions),
            rows=Rows(100),
            has_changelog=changelog,
        )
        for partition in range(partitions)
    )
    return SparkState(4, (OperatorState(OperatorMetadata(0, "stateStoreSave", ("default",), partitions), stores),))


def recovered(found: SparkState) -> Measured:
    """As a machine with the true rates would."""
    parts = predicted(found, TRUE, slots=CORES)
    begun = parts.session + parts.query
    return Measured(session=parts.session, begun=begun, end=begun + parts.state + parts.epoch, state=found)


def test_rates_are_found_again_in_recoveries_that_they_made() -> None:
    small = SMALL * EPOCHS
    made = {}
    for name, provider in (("changelog", Provider.ROCKSDB), ("hdfs", Provider.HDFS_BACKED)):
        made[f"{name}-few"] = recovered(state(provider, FEW, rows=small))
        made[f"{name}-many"] = recovered(state(provider, MANY, rows=small))
        made[f"{name}-rows"] = recovered(state(provider, FEW, rows=ROWS))
    for name, partitions, size in (("few", FEW, 40_000), ("many", MANY, 40_000), ("rows", FEW, 4_000_000)):
        made[f"snapshots-{name}"] = recovered(state(Provider.ROCKSDB, partitions, size=size, changelog=False))
    made["hdfs-base"] = recovered(state(Provider.HDFS_BACKED, FEW, rows=small, size=2_000_000))

    found = rates_of(made, CORES)

    assert (found.session, found.query) == (6.0, 2.0)
    assert found.epoch == pytest.approx(1.5, abs=0.01)
    assert found.uploaded == pytest.approx(0.05, rel=0.06)
    for provider in Provider:
        for rate in ("opened", "loaded", "replayed"):
            true = getattr(TRUE.stores[provider], rate)
            assert getattr(found.stores[provider], rate) == pytest.approx(true, rel=0.06), (provider, rate)


def test_noise_never_makes_a_rate_that_is_not_above_zero() -> None:
    one = recovered(state(Provider.ROCKSDB, FEW, rows=SMALL))
    names = [f"{n}-{kind}" for n in ("changelog", "snapshots", "hdfs") for kind in ("few", "many", "rows")]
    noisy = {name: replace(one, end=one.end - place) for place, name in enumerate([*names, "hdfs-base"])}

    found = rates_of(noisy, CORES)

    assert found.epoch > 0
    for own in found.stores.values():
        assert min(own.opened, own.loaded, own.replayed) > 0


class Machine:
    """Recovers streams in a given time of their first epoch, by name; the first times are disturbed by other work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disturbed: int) -> None:
        self.disturbed, self.recovered = disturbed, Counter[str]()
        built = {name: {"cpu": 1.0} for name in calibration.RECOVERED}
        monkeypatch.setattr(calibration, "build_all", lambda *_: built)
        monkeypatch.setattr(calibration, "recover", self.recover)

    def recover(self, scratch: Scratch, _folder: Path, _cores: int, *, rows: int) -> Measured:
        self.recovered[scratch.name] += 1
        one = recovered(state(scratch.setting.provider, scratch.setting.partitions, rows=scratch.updates * EPOCHS))
        is_disturbed = scratch.name.endswith("-few") and self.recovered[scratch.name] <= self.disturbed
        return replace(one, end=one.end + 60.0) if is_disturbed else one


def test_recoveries_that_cannot_be_told_apart_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, disturbed=2)
    rates, _ = calibration.calibrate(cores=CORES, rows=ROWS)

    assert machine.recovered["changelog-few"] > 2 >= machine.recovered["snapshots-rows"]
    assert rates.stores[Provider.ROCKSDB].replayed == pytest.approx(50_000, rel=0.06)
    assert rates.stores[Provider.HDFS_BACKED].replayed == pytest.approx(80_000, rel=0.06)


def test_a_machine_that_does_other_work_all_the_time_gets_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, disturbed=100)

    with pytest.raises(Refused, match=r"5,000 changes in 24 partitions took 2.7 s.*Nothing was stored.*quiet"):
        calibration.calibrate(cores=CORES, rows=ROWS)


def test_costs_are_differences_by_stores_and_by_rows() -> None:
    built = {}
    for name in ("changelog", "snapshots", "hdfs"):
        built[f"{name}-few"] = {"cpu": 0.5 + FEW * 0.01 + SMALL * 1e-5}
        built[f"{name}-many"] = {"cpu": 0.5 + MANY * 0.01 + SMALL * 1e-5}
        built[f"{name}-rows"] = {"cpu": 0.5 + FEW * 0.01 + ROWS / EPOCHS * 1e-5}
    one = recovered(state(Provider.ROCKSDB, FEW, size=4000))
    found = costs_of(built, {"snapshots-rows": one, "hdfs-base": one}, ROWS)

    assert found.changelog.store == pytest.approx(0.01)
    assert found.changelog.row == pytest.approx(1e-5)
    assert found.row_bytes[Provider.ROCKSDB] == pytest.approx(10.0)
