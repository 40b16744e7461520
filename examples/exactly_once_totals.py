"""Keeps exact totals per customer in Cassandra: each order is added once, whatever is killed.

    epochal serve cassandra                                          # in another terminal; or use your own
    python examples/exactly_once_totals.py [FOLDER] [HOST:PORT]

Cassandra's counters cannot do this: a repeated increment counts twice. The sink adds each epoch to the totals and
records in the same row (column `epochal`) which epoch they hold.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cassandra.cluster import Cluster

import epochal
from epochal import CassandraSink, EpochWriter

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2)"
KEYSPACE = "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
TABLE = (
    "CREATE TABLE IF NOT EXISTS shop.totals (customer text PRIMARY KEY, amount decimal, orders bigint, epochal text)"
)


def main(folder: Path, host: str, port: int) -> None:
    """Add up all orders that have arrived, then end."""
    put_sample_orders(folder / "incoming")
    with Cluster([host], port=port, protocol_version=5) as cluster:
        shop = cluster.connect()
        shop.execute(KEYSPACE)
        shop.execute(TABLE)
        spark = epochal.session("totals")
        orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "incoming"))

        totals = CassandraSink(
            "shop.totals",
            mode="accumulate",
            totals={"amount": "sum", "orders": "count"},
            drop=["order_id"],
            contact_points=[host],
            port=port,
        )
        query = EpochWriter(totals).start(
            orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
        )
        query.awaitTermination()

        for row in sorted(shop.execute("SELECT customer, orders, amount FROM shop.totals")):
            print(f"{row.customer}: {row.orders} orders, {row.amount}")


def put_sample_orders(incoming: Path) -> None:
    """Write four files of fifty orders, unless they exist."""
    if not incoming.exists():
        incoming.mkdir(parents=True)
        for file in range(4):
            numbers = range(50 * file, 50 * file + 50)
            orders = [{"order_id": n, "customer": f"c{n % 3}", "amount": f"{n}.50"} for n in numbers]
            (incoming / f"{file}.json").write_text("\n".join(map(json.dumps, orders)))


if __name__ == "__main__":
    at, _, number = (sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9042").rpartition(":")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "totals-example"), at, int(number))
