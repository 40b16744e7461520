"""Writes orders to a SQLite table, by Spark settings alone: the sink is found by its entry point.

    pip install -e .
    python orders_to_sqlite.py [FOLDER]

Kill it at any time: `epochal recover FOLDER/checkpoint` or another run brings the table to a whole epoch.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import epochal
from epochal import EpochWriter


def main(folder: Path) -> None:
    """Write all orders that have arrived, then end."""
    incoming, database = folder / "incoming", folder / "shop.db"
    if not incoming.exists():
        incoming.mkdir(parents=True)
        for file in range(3):
            rows = [{"order_id": n, "customer": f"c{n % 7}"} for n in range(100 * file, 100 * file + 100)]
            (incoming / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (order_id INTEGER NOT NULL, customer TEXT)")

    settings = {
        "spark.epochal.orders.sinks": "shop",
        "spark.epochal.orders.shop.type": "sqlite",
        "spark.epochal.orders.shop.path": str(database),
        "spark.epochal.orders.shop.table": "orders",
    }
    spark = epochal.session("orders", conf=settings)
    orders = spark.readStream.schema("order_id BIGINT, customer STRING").option("maxFilesPerTrigger", 1)
    query = EpochWriter.from_conf(spark, "orders").start(
        orders.json(str(incoming))
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query.awaitTermination()

    with closing(sqlite3.connect(database)) as db:
        print(f"{db.execute('SELECT count(*) FROM orders').fetchone()[0]} orders")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sqlite-example"))
