"""Golden traces of the coordinator. `scene` explains the format.

After a deliberate change of the protocol, ``EPOCHAL_REWRITE_SCENARIOS=1`` writes them anew; read the
difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal.txn import failpoints
from tests.txn.scene import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_coordinator_does_what_the_scenario_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = path.read_text(encoding="utf-8")

    played = play(written, lambda hit: monkeypatch.setattr(failpoints, "hit", hit))

    if os.environ.get("EPOCHAL_REWRITE_SCENARIOS"):
        path.write_text(played, encoding="utf-8")
    assert played == written
