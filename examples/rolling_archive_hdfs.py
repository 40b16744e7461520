"""Archives events by hour in parts that grow over epochs, on HDFS: few large files instead of many small ones.

    epochal serve hdfs                                               # in another terminal; or use your own
    python examples/rolling_archive_hdfs.py [TARGET]                 # such as hdfs://127.0.0.1:9000/demo

Without TARGET it writes to a local folder. A part closes at 300 events; what is in open parts is committed, but not yet
visible. `epochal status TARGET/checkpoint` lists it, `epochal roll TARGET/checkpoint` publishes it.
"""

from __future__ import annotations

import sys

import epochal
from epochal import EpochWriter, Rolling, RollingFileSink, TimeBucket


def main(target: str) -> None:
    """Archive four epochs of 250 events, once, then end."""
    spark = epochal.session("archive")
    events = spark.range(1000).selectExpr(
        "id", "timestamp_seconds(1794787200 + id * 10) AS at", "concat('user', id % 5) AS user"
    )
    events.repartitionByRange(4, "id").write.mode("ignore").json(f"{target}/incoming")
    arrived = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1).json(f"{target}/incoming")

    archive = RollingFileSink(
        f"{target}/archive",
        format="json",
        bucket_by=[TimeBucket("at", "hour")],
        rolling=Rolling(max_rows=300, max_age="1 h"),  # in production perhaps max_bytes="128 MB"
    )
    query = EpochWriter(archive).start(
        arrived.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{target}/checkpoint")
    )
    query.awaitTermination()

    for epoch in epochal.published(f"{target}/archive"):
        for name, _ in epoch.files:
            print(f"epoch {epoch.epoch} published {name.rpartition('/')[0]}")
    print(f"{spark.read.json(f'{target}/archive').count()} events are visible, the others are in open parts")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "archive-example")
