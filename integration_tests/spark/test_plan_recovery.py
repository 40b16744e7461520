"""`epochal plan-recovery` with rates that are really measured, and a proof that is really built and recovered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.calibration import calibrate
from epochal.spark_plugins.recovery.knobs import Costs
from epochal.spark_plugins.recovery.model import Rates
from epochal.txn.errors import Refused
from tests.cli.test_schemas import check
from tests.spark_plugins.recovery.written import Written, archive, lz4, rows, untagged

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

ROWS = 20_000
NOISE = "this machine cannot be measured now: the recovery of a stream with"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """20,000 keys in two partitions: a snapshot, and two changelogs after it."""
    written = Written(tmp_path / "checkpoint")
    written.operator()
    for partition in range(2):
        written.put(f"state/0/{partition}/1.zip", archive(ROWS // 2, {"a.sst": 150_000}))
        for version in (2, 3):
            written.put(f"state/0/{partition}/{version}.changelog", lz4(untagged(rows(0, 500))))
    for epoch in range(3):
        written.commit(epoch)
    return written.path


@pytest.mark.timeout(1800)
def test_a_measured_machine_proposes_a_setting_that_its_proof_holds(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept, "place", lambda: tmp_path / "cache" / "recovery-rates.json")
    try:
        found, costs = calibrate(cores=2, rows=ROWS, rounds=1)
    except Refused as refused:
        # On a busy machine one round of so few rows may be noise. It is refused by name; the proof needs no rates.
        assert str(refused).startswith(NOISE)  # noqa: PT017  # either outcome is defined, and no other
        found, costs = Rates(measured="2026-11-18T00:00:00Z"), Costs()
    stores = found.stores.values()
    assert min(rate for store in stores for rate in (store.opened, store.loaded, store.replayed)) > 0
    assert min(found.session, found.epoch) > 0
    assert costs.changelog.store > 0
    assert kept.load_all() is None  # measuring stores nothing by itself
    kept.save(found, costs)

    command = ["plan-recovery", checkpoint, "--objective", "300 s", "--interval", "60 s", "--cores", "2"]
    code = main([*command, "--verify", "--json"])
    answer = json.loads(capsys.readouterr().out)
    check("plan-recovery", answer)

    assert code == 0
    assert answer["rates_measured"] == found.measured
    assert answer["proof"]["holds"] is True
    assert 0 < answer["proof"]["measured_seconds"] <= 300
    assert answer["proof"]["extent"] == answer["proposed"]["extent"]
