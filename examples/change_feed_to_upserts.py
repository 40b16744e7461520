"""Merges a feed of changes into a Delta table and archives the changes, both in the same epoch.

    python examples/change_feed_to_upserts.py [FOLDER]

Of several changes of a key the last by `order_by` wins, and a change that `delete_when` matches deletes its key. Kill
it at any time and run it again: the table and the archive end at the same whole epoch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import epochal
from epochal import DeltaSink, EpochWriter, RollingFileSink

SCHEMA = "order_id BIGINT, status STRING, changed_at BIGINT"


def main(folder: Path) -> None:
    """Merge all changes that have arrived, then end."""
    put_sample_changes(folder / "changes")
    spark = epochal.session("orders")
    changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "changes"))

    table = DeltaSink(
        str(folder / "lake"),
        mode="upsert",
        keys=["order_id"],
        order_by=["changed_at"],
        delete_when="status = 'cancelled'",
    )
    writer = EpochWriter(table, RollingFileSink(str(folder / "archive-of-changes"), format="json"))
    query = writer.start(
        changes.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "delta-checkpoint"))
    )
    query.awaitTermination()

    for row in spark.read.format("delta").load(str(folder / "lake")).groupBy("status").count().sort("status").collect():
        print(f"{row['status']}: {row['count']} orders")


def put_sample_changes(folder: Path) -> None:
    """Write three files, unless they exist: 100 orders are placed, then 50 are shipped and 10 cancelled."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    steps = [("placed", range(100)), ("shipped", range(50)), ("cancelled", range(50, 60))]
    for step, (status, orders) in enumerate(steps):
        rows = ({"order_id": n, "status": status, "changed_at": step} for n in orders)
        file = folder / f"{step}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (step, step))  # Spark reads the oldest first, and these were written at the same time


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "orders-example"))
