"""Writes orders to three stores together: an archive of files, a Delta table and a Cassandra table.

    epochal serve cassandra                                          # in another terminal; or use your own
    python examples/orders_to_three_sinks.py [FOLDER] [HOST:PORT]

Each epoch is in all three or in none. Kill it at any time and run it again: the three counts are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cassandra.cluster import Cluster

import epochal
from epochal import CassandraSink, DeltaSink, EpochWriter, RollingFileSink

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE"
KEYSPACE = "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
TABLE = (
    "CREATE TABLE IF NOT EXISTS shop.orders (customer text, order_id bigint, amount decimal, day date,"
    " PRIMARY KEY (customer, order_id))"
)


def main(folder: Path, host: str, port: int) -> None:
    """Write all orders that have arrived, then end."""
    put_sample_orders(folder / "incoming")
    with Cluster([host], port=port, protocol_version=5) as cluster:
        shop = cluster.connect()
        shop.execute(KEYSPACE)
        shop.execute(TABLE)
        spark = epochal.session("orders")
        orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "incoming"))

        writer = EpochWriter(
            RollingFileSink(str(folder / "archive"), format="json", bucket_by=["day"]),
            DeltaSink(str(folder / "lake"), partition_by=["day"]),
            CassandraSink("shop.orders", contact_points=[host], port=port),
        )
        query = writer.start(
            orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
        )
        query.awaitTermination()  # returns when the last epoch is in all three

        print(f"files: {spark.read.json(str(folder / 'archive')).count()} orders")
        print(f"Delta: {spark.read.format('delta').load(str(folder / 'lake')).count()} orders")
        print(f"Cassandra: {shop.execute('SELECT count(*) FROM shop.orders').one().count} orders")


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
