"""The example of docs/postgres.md, as it stands there but for the server and the names of schemas."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from integration_tests.cassandra.test_docs import ROOT, run
from integration_tests.postgres.tables import Space

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


def test_the_example_writes_orders_totals_and_a_delta_table(space: Space, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "postgres.md").read_text().replace("shop.", f"{space.name}.")
    server = f'server = {{**{space.server.options!r}, "ledger_schema": "{space.ledger}"}}\n'
    code = re.sub(r"server = .*\n", server, re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    space.execute(re.findall(r"```sql\n(.*?)```", text, re.DOTALL)[0].replace("CREATE SCHEMA shop;", ""))
    (tmp_path / "incoming").mkdir()
    (rows,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (tmp_path / "incoming" / "1.json").write_text(rows)
    run(["-c", code], tmp_path)

    orders = space.execute(f"SELECT id, customer, amount FROM {space.name}.orders ORDER BY id")
    assert orders == [(1, 7, Decimal("1.50")), (2, 7, Decimal("2.00"))]
    assert space.execute(f"SELECT * FROM {space.name}.totals") == [(7, Decimal("6.50"), 3)]
    assert DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table().num_rows == 3
