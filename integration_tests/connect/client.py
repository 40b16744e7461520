"""A client of a Spark Connect server, in a process of its own: Spark Connect is a mode of the whole process.

    python -m integration_tests.connect.client

It reads orders, one JSON object a line, and answers each with a line. An order: ``url`` of the server, ``root`` of the
world, ``sinks`` (as `integration_tests.spark.driver` has them, or a name in `SINKS`), and what else `run` takes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import epochal
from integration_tests.spark.driver import sinks_of
from integration_tests.spark.world import SCHEMA, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER = "answer: "
queries: dict[str, Any] = {}  # that were left running, by their ids
HEADER = {"header": "true"}


def sqlite_sink(world: World) -> Any:
    """A sink of another package, which this process and the server's find beside the repository's own."""
    from epochal_sqlite import SqliteSink  # type: ignore[import-not-found, unused-ignore]  # an example

    return SqliteSink(str(world.root / "shop.db"), table="orders")


# By name: sinks that `sinks_of` does not have.
SINKS: dict[str, Callable[[World], list[Any]]] = {
    "formats": lambda world: [
        epochal.RollingFileSink(f"{world.root}/orc", format="orc", bucket_by=["kind"], name="orc", digest=True),
        epochal.RollingFileSink(f"{world.root}/csv", format="csv", options=HEADER, name="csv", max_rows_per_file=2),
        epochal.RollingFileSink(f"{world.root}/avro", format="avro", name="avro"),
        epochal.RollingFileSink(f"{world.root}/gzip", format="json", compression="gzip", name="gzip", digest=True),
        epochal.RollingFileSink(str(world.first), name="parquet", digest=True),
    ],
    "sqlite": lambda world: [sqlite_sink(world)],
    "rolling": lambda world: [
        epochal.RollingFileSink(
            f"{world.root}/{format_}",
            format=format_,
            bucket_by=["word"],
            rolling=epochal.Rolling(max_rows=7),
            options=HEADER if format_ == "csv" else {},
            name=format_,
        )
        for format_ in ("parquet", "orc", "json", "csv")
    ],
}


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order; what came of it."""
    spark = _session(order["url"])
    world = World(Path(order["root"]))
    if "of" in order:
        return _asked(queries[order["of"]], order)
    which = order.get("sinks", "2")
    at = order.get("at", "")
    sinks = SINKS[which](world) if which in SINKS else sinks_of(world, which, order.get("cassandra", ""), at)
    writer = epochal.EpochWriter(*sinks, **order.get("writer", {}))
    frame = _frame(spark, world)
    for name in order.get("drop", ()):
        frame = frame.drop(name)
    checkpoint = f"{at}/checkpoint" if at else str(world.checkpoint)
    stream = frame.writeStream.options(**{"checkpointLocation": checkpoint, **order.get("options", {})})
    if "trigger" in order:
        stream = stream.trigger(**order["trigger"])
    if order.get("plain"):
        query: Any = stream.foreachBatch(writer).start()
    else:
        query = writer.start(stream)
    queries[str(query.id)] = query
    if order.get("leave"):
        return {"id": str(query.id), "name": query.name}
    # Spark's own handle settles nothing.
    (query.spark_query if order.get("only_spark") else query).awaitTermination()
    return {"id": str(query.id)}


def _asked(query: Any, order: dict[str, Any]) -> dict[str, Any]:
    """What an order wants of a query that was left running."""
    match order["do"]:
        case "stop":
            query.stop()
        case "wait":
            query.awaitTermination()
        case "settle":
            query.settle(order["timeout"])
    return {}


def _frame(spark: SparkSession, world: World) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"file:{world.source}")


def _session(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None and os.environ.get("EPOCHAL_TEST_URL") == url:
        return running
    if running is not None:
        running.stop()
    os.environ["EPOCHAL_TEST_URL"] = url
    return SparkSession.builder.remote(url).getOrCreate()


def main() -> None:
    for line in sys.stdin:
        try:
            answer = run(json.loads(line))
        except Exception as fault:  # noqa: BLE001  # the answer tells it
            answer = {"error": type(fault).__name__, "text": str(fault)}
        print(f"{ANSWER}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
