"""Writes orders to three places together: a lookup table, totals per customer, and an archive of files.

    epochal serve cassandra                                          # in another terminal; or use your own
    python examples/orders_to_cassandra.py [FOLDER] [HOST:PORT]

Kill it at any time, put more files into FOLDER/incoming, and run it again: the totals stay exact.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import epochal
from epochal import CassandraSink, EpochWriter, RollingFileSink

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE"
TABLES = (
    "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    (
        "CREATE TABLE IF NOT EXISTS shop.orders (customer text, order_id bigint, amount decimal, day date,"
        " PRIMARY KEY (customer, order_id))"
    ),
    "CREATE TABLE IF NOT EXISTS shop.totals (customer text PRIMARY KEY, amount decimal, orders bigint, epochal text)",
)


def main(folder: Path, host: str, port: int) -> None:
    """Write all orders that have arrived, then end."""
    from cassandra.cluster import Cluster

    put_sample_orders(folder / "incoming")
    cluster = Cluster([host], port=port, protocol_version=5)
    shop = cluster.connect()
    for statement in TABLES:
        shop.execute(statement)
    spark = epochal.session("orders")
    orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "incoming"))

    there: dict[str, Any] = {"contact_points": [host], "port": port}
    writer = EpochWriter(
        CassandraSink("shop.orders", name="orders", **there),
        CassandraSink(
            "shop.totals",
            name="totals",
            mode="accumulate",
            totals={"amount": "sum", "orders": "count"},
            drop=["order_id", "day"],
            **there,
        ),
        RollingFileSink(str(folder / "archive"), format="json", bucket_by=["day"]),
    )
    query = writer.start(
        orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    )
    query.awaitTermination()  # returns when the last epoch is in all three

    for row in sorted(shop.execute("SELECT customer, orders, amount FROM shop.totals")):
        print(f"{row.customer}: {row.orders} orders, {row.amount}")
    spark.stop()
    cluster.shutdown()


def put_sample_orders(incoming: Path) -> None:
    """Write four files of fifty orders, unless they exist."""
    if not incoming.exists():
        incoming.mkdir(parents=True)
        for file in range(4):
            orders = [
                {"order_id": n, "customer": f"c{n % 3}", "amount": f"{n}.50", "day": f"2026-11-{file + 10}"}
                for n in range(50 * file, 50 * file + 50)
            ]
            (incoming / f"{file}.json").write_text("\n".join(map(json.dumps, orders)))


if __name__ == "__main__":
    at, _, number = (sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9042").rpartition(":")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "orders-example"), at, int(number))
