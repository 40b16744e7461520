"""The README's example, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from epochal import published

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


def run_block(document: str, mark: str, folder: Path) -> str:
    """Run the code block of a document that has a mark in it, as it stands there, on two epochs of orders."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    (code,) = [block for block in blocks if mark in block]
    (folder / "incoming").mkdir()
    for day in (16, 17):
        order = {"order_id": day, "customer": "c", "amount": "1.50", "day": f"2026-11-{day}"}
        (folder / "incoming" / f"{day}.json").write_text(json.dumps(order) + "\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_readme_example_writes_every_order_once_to_both_sinks(tmp_path: Path) -> None:
    run_block("README.md", "EpochWriter(", tmp_path)

    assert sum(epoch.rows for epoch in published(str(tmp_path / "archive/orders"))) == 2
    assert len(list((tmp_path / "archive" / "orders").glob("day=2026-11-1?/part-*.json"))) == 2
    assert sorted(DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table()["order_id"].to_pylist()) == [16, 17]


def test_the_delta_example_travels_to_its_first_epoch(tmp_path: Path) -> None:
    said = run_block("docs/delta.md", "epoch_version", tmp_path)

    assert said.splitlines()[-1] == "2 orders in the first epoch"
