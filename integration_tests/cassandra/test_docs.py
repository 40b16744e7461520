"""The example of docs/cassandra.md, as it stands there but for the server's port and the keyspace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from epochal import published
from epochal.testing import servers
from integration_tests.cassandra.tables import Keyspace

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


def run(arguments: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_the_example_writes_orders_totals_and_files(space: Keyspace, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "cassandra.md").read_text().replace("shop.", f"{space.name}.")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0].replace("9042", str(space.port))
    for statement in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)[0].strip().split(";\n"):
        space.execute(statement.rstrip(";"))
    (tmp_path / "incoming").mkdir()
    for number, amount in ((1, "1.50"), (2, "2.00")):
        order = {"customer": 7, "id": number, "amount": amount, "at": "2026-11-16T12:00:00.000Z"}
        (tmp_path / "incoming" / f"{number}.json").write_text(json.dumps(order) + "\n")
    run(["-c", code], tmp_path)

    found = space.execute(f"SELECT customer, id, amount FROM {space.name}.orders")
    assert [tuple(row) for row in found] == [(7, 1, Decimal("1.50")), (7, 2, Decimal("2.00"))]
    (total,) = space.execute(f"SELECT customer, amount, orders FROM {space.name}.totals")
    assert tuple(total) == (7, Decimal("3.50"), 2)
    assert sum(epoch.rows for epoch in published(str(tmp_path / "archive" / "orders"))) == 2


@pytest.mark.local
def test_the_script_that_reads_from_kafka_writes_each_order_once_to_three_sinks(
    space: Keyspace, tmp_path: Path
) -> None:
    script = str(ROOT / "examples" / "kafka_to_three_sinks.py")
    with servers.kafka() as kafka:
        said = run([script, str(tmp_path), kafka.bootstrap, f"{space.hosts[0]}:{space.port}"], tmp_path)
    space.execute("DROP TABLE shop.kafka_orders")

    assert said[-3:] == ["files: 100 orders", "Delta: 100 orders", "Cassandra: 100 orders"]
