"""The examples that write to Cassandra. Their keyspace is `shop`, as their readers see it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration_tests.cassandra.tables import keyspace
from integration_tests.examples import run_example, settings_restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.testing.servers import CassandraCluster

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def address(spark: SparkSession, cassandra: CassandraCluster) -> Iterator[str]:
    """Where the server is; afterwards the examples' keyspace is gone."""
    with keyspace(cassandra) as space:
        with settings_restored(spark):
            yield f"{space.hosts[0]}:{space.port}"
        space.execute("DROP KEYSPACE shop")


def test_each_order_is_in_three_stores_once(address: str, tmp_path: Path) -> None:
    said = run_example("orders_to_three_sinks.py", tmp_path, address)

    assert said == ["files: 200 orders", "Delta: 200 orders", "Cassandra: 200 orders"]


def test_each_order_is_added_to_its_customers_totals_once(address: str, tmp_path: Path) -> None:
    said = run_example("exactly_once_totals.py", tmp_path, address)

    assert said == [
        f"c{c}: {len(range(c, 200, 3))} orders, {sum(Decimal(n) + Decimal('0.50') for n in range(c, 200, 3))}"
        for c in range(3)
    ]
    assert run_example("exactly_once_totals.py", tmp_path, address) == said, "nothing has arrived since"
