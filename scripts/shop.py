"""The drivers of the streams in docs/console.md's pictures: real queries with real sinks, as a small shop has them.

`scripts/screenshots.py` starts them, as ``python -m scripts.shop ROOT CASSANDRA_PORT STREAM...``, feeds them and kills
them. A stream is read from JSON files in ROOT/incoming/STREAM, one file an epoch.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import epochal
from epochal import CassandraSink, DeltaSink, EpochWriter, Rolling, RollingFileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal import EpochQuery

SCHEMA = "id BIGINT, customer STRING, country STRING, amount DOUBLE, day STRING"
TABLE = "shop.payments"
KEY = "customer, id"
CQL = (
    "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    f"CREATE TABLE {TABLE} (customer text, id bigint, country text, amount double, day text, PRIMARY KEY ({KEY}))",
)
COUNTRIES = ("DE", "FR", "IT")
RESTART_AFTER = 28  # epochs of orders


def incoming(root: Path, stream: str) -> Path:
    """Where a stream's files arrive."""
    return root / "incoming" / stream


def checkpoint(root: Path, stream: str) -> Path:
    """A stream's checkpoint."""
    return root / "checkpoints" / stream


def feed(root: Path, stream: str, number: int) -> None:
    """One file, which becomes one epoch."""
    chance = random.Random(number)
    folder = incoming(root, stream)
    folder.mkdir(parents=True, exist_ok=True)
    rows = (
        {
            "id": 10_000 * number + n,
            "customer": f"c{chance.randrange(500)}",
            "country": chance.choice(COUNTRIES),
            "amount": round(chance.uniform(1, 90), 2),
            "day": "2026-11-18" if n % 3 else "2026-11-17",
        }
        for n in range(chance.randint(2_000, 4_000))
    )
    hidden = folder / f".{number:06d}"  # Spark must not see half of it
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:06d}.json")


def sinks(root: Path, stream: str, port: int) -> list[Any]:
    """The sinks of a stream."""
    targets = root / "stores" / stream
    archive = RollingFileSink(str(targets / "archive"), format="json", bucket_by=["day"], name="archive")
    lake = DeltaSink(str(targets / "lake"), name="lake")
    match stream:
        case "orders":
            return [archive, lake, RollingFileSink(str(targets / "reports"), bucket_by=["country"], name="reports")]
        case "payments":
            return [lake, CassandraSink(TABLE, contact_points=["127.0.0.1"], port=port, name="ledger")]
        case "clicks":
            return [archive, lake]
        case "sessions":
            open_for_long = Rolling(max_age="1 h")
            by = ["day", "country"]
            return [RollingFileSink(str(targets / "archive"), bucket_by=by, rolling=open_for_long, name="archive")]
    raise SystemExit(f"there is no stream {stream!r}")


def start(spark: SparkSession, root: Path, stream: str, port: int) -> EpochQuery:
    """Start a stream; sessions ends when all of its files are read."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(incoming(root, stream)))
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint(root, stream))).queryName(stream)
    if stream == "sessions":
        writer = writer.trigger(availableNow=True)
    return EpochWriter(*sinks(root, stream, port)).start(writer)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.05)


def main(root: Path, port: int, streams: list[str]) -> None:
    """Run streams until this process is killed. That of orders is started twice."""
    spark = epochal.session("shop", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    queries = {stream: start(spark, root, stream, port) for stream in streams}
    if orders := queries.get("orders"):
        commits = checkpoint(root, "orders") / "commits"
        wait_until((commits / str(RESTART_AFTER - 1)).exists, f"{RESTART_AFTER} epochs of orders")
        orders.stop()
        queries["orders"] = start(spark, root, "orders", port)
    for query in queries.values():
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
