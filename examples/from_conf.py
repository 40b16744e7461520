"""The same archive, configured by Spark settings alone, so that operations decide where rows go.

    python examples/from_conf.py FOLDER

It reads FOLDER/incoming, which `quickstart.py` creates. In production the settings come from
spark-defaults.conf or `spark-submit --conf`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import epochal
from epochal import EpochWriter

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE"


def main(folder: Path) -> None:
    """Write what has arrived to two sinks, each order exactly once to both."""
    settings = {
        "spark.epochal.orders.sinks": "archive, by_customer",
        "spark.epochal.orders.archive.type": "files",
        "spark.epochal.orders.archive.path": str(folder / "conf-archive"),
        "spark.epochal.orders.archive.bucket_by": "day",
        "spark.epochal.orders.by_customer.type": "files",
        "spark.epochal.orders.by_customer.path": str(folder / "conf-by-customer"),
        "spark.epochal.orders.by_customer.format": "json",
        "spark.epochal.orders.by_customer.bucket_by": "customer",
    }
    spark = epochal.session("orders", conf=settings)
    orders = spark.readStream.schema(SCHEMA).json(str(folder / "incoming"))

    writer = EpochWriter.from_conf(spark, "orders")
    query = writer.start(
        orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "conf-checkpoint"))
    )
    query.awaitTermination()

    for name in ("conf-archive", "conf-by-customer"):
        print(f"{name}: {sum(epoch.rows for epoch in epochal.published(str(folder / name)))} orders")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
