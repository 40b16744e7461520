"""The README's example, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from epochal import published

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.spark]


def test_the_readme_example_writes_every_order_once_to_both_sinks(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "incoming").mkdir()
    for day in (16, 17):
        orders = [{"order_id": day, "customer": "c", "amount": "1.50", "day": f"2026-11-{day}"}]
        (tmp_path / "incoming" / f"{day}.json").write_text("".join(json.dumps(o) + "\n" for o in orders))

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True, timeout=240)

    for target in ("archive/orders", "serving/orders"):
        assert sum(epoch.rows for epoch in published(str(tmp_path / target))) == 2
    assert len(list((tmp_path / "archive" / "orders").glob("day=2026-11-1?/part-*.parquet"))) == 2
