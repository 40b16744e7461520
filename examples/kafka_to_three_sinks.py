"""Reads orders from Kafka and writes each of them exactly once to files, a Delta table and Cassandra.

    epochal serve kafka                                              # in another terminal; or use your own
    epochal serve cassandra                                          # in a third
    python examples/kafka_to_three_sinks.py [FOLDER] [KAFKA] [CASSANDRA]

Kill it at any time and run it again: each run sends a hundred more orders, and none is lost or doubled.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import epochal
from epochal import CassandraSink, DeltaSink, EpochWriter, RollingFileSink

SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2)"
TABLES = (
    "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    (
        "CREATE TABLE IF NOT EXISTS shop.kafka_orders (customer text, order_id bigint, amount decimal, partition int,"
        " offset bigint, PRIMARY KEY (customer, order_id))"
    ),
)


def main(folder: Path, kafka: str, cassandra: str) -> None:
    """Send some orders, write all that Kafka holds, then end."""
    from cassandra.cluster import Cluster
    from pyspark.sql import functions as f

    host, _, port = cassandra.rpartition(":")
    cluster = Cluster([host], port=int(port), protocol_version=5)
    shop = cluster.connect()
    for statement in TABLES:
        shop.execute(statement)
    spark = epochal.session("orders", kafka=True)  # fetches the jars of Spark's Kafka source, once
    topic = {"kafka.bootstrap.servers": kafka, "topic": "orders"}
    first = int(time.time()) * 1000  # other orders in each run
    sample = spark.range(first, first + 100).selectExpr(
        "to_json(struct(id AS order_id, concat('c', id % 3) AS customer, id + 0.5 AS amount)) AS value"
    )
    sample.write.format("kafka").options(**topic).save()

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).option("subscribe", "orders")
    messages = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
    order = f.from_json(f.col("value").cast("string"), SCHEMA)
    # With partition and offset in the rows, a new checkpoint can begin after them: docs/kafka.md.
    orders = messages.select(order.alias("order"), "partition", "offset").select("order.*", "partition", "offset")

    writer = EpochWriter(
        RollingFileSink(str(folder / "archive"), format="json", bucket_by=["customer"]),
        DeltaSink(str(folder / "lake")),
        CassandraSink("shop.kafka_orders", contact_points=[host], port=int(port)),
    )
    query = writer.start(
        orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    )
    query.awaitTermination()  # returns when the last epoch is in all three

    print(f"files: {spark.read.json(str(folder / 'archive')).count()} orders")
    print(f"Delta: {spark.read.format('delta').load(str(folder / 'lake')).count()} orders")
    print(f"Cassandra: {shop.execute('SELECT count(*) FROM shop.kafka_orders').one()[0]} orders")
    spark.stop()
    cluster.shutdown()


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(Path(given.get(1, "orders-example")), given.get(2, "127.0.0.1:9092"), given.get(3, "127.0.0.1:9042"))
