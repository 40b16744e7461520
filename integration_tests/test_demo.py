"""`epochal demo`, for real: Spark, kill -9, and the numbers it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
KILLS = 3

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", "demo", "--json", "--kills", str(KILLS), "--keep", str(folder / "run")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(folder) == ["run"]  # nothing is left in the working folder
    return json.loads(done.stdout)


def test_epochal_has_every_order_once_in_both_sinks(shown: Any) -> None:
    for system in shown["systems"][:2]:
        assert system["sink"].startswith("epochal")
        assert system["found"] == system["expected"] == 24_000
        assert (system["duplicates"], system["missing"], system["wrong"]) == (0, 0, 0)
    assert shown["staged_leftovers"] == 0
    assert shown["perfect"]


def test_no_reader_saw_a_row_of_epochal_before_its_checkpoint(shown: Any) -> None:
    assert [system["seen_early"] for system in shown["systems"][:2]] == [0, 0]
    assert shown["looks"] > 100


def test_plain_append_has_duplicates_and_early_rows_under_the_same_kills(shown: Any) -> None:
    plain = shown["systems"][2]

    assert plain["sink"] == "foreachBatch append"
    assert plain["duplicates"] > 0
    assert plain["seen_early"] > 0
    assert plain["missing"] == 0


def test_every_kill_hit_a_driver_in_the_middle_of_an_epoch(shown: Any) -> None:
    assert len(shown["kills"]) == KILLS
    assert shown["starts"] == KILLS + 1
    assert "no commits/" in shown["kills"][0]["plain"]
    for kill in shown["kills"][1:]:
        assert kill["epochal"] != "between two epochs"
