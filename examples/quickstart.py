"""Archives orders that arrive as JSON files by day, every order exactly once.

    python quickstart.py [FOLDER]

Kill it at any time, put more files into FOLDER/incoming, and run it again: no order is lost or doubled.
`epochal status FOLDER/checkpoint` shows its state. docs/quickstart.md goes through it step by step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import epochal
from epochal import EpochWriter, RollingFileSink

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE"


def main(folder: Path) -> None:
    """Archive all orders that have arrived, then end."""
    put_sample_orders(folder / "incoming")
    spark = epochal.session("orders")
    orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "incoming"))

    writer = EpochWriter(RollingFileSink(str(folder / "archive"), format="json", bucket_by=["day"]))
    query = writer.start(
        orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    )
    query.awaitTermination()  # returns when the last epoch can be read

    archived = epochal.published(str(folder / "archive"))
    print(f"{sum(epoch.rows for epoch in archived)} orders in {len(archived)} epochs")


def put_sample_orders(incoming: Path) -> None:
    """Write three files of a hundred orders, unless they exist."""
    if incoming.exists():
        return
    incoming.mkdir(parents=True)
    for day in (16, 17, 18):
        orders = (
            {"order_id": 100 * day + n, "customer": f"c{n % 7}", "amount": "9.99", "day": f"2026-11-{day}"}
            for n in range(100)
        )
        (incoming / f"{day}.json").write_text("".join(json.dumps(order) + "\n" for order in orders))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "orders-example"))
