"""The driver that gets killed: a process of its own, with two queries on the same orders.

One writes through epochal to two targets. The other is the usual code: foreachBatch with an append.
Both run in one JVM, so that each kill hits both. Nothing here knows about the kills::

    python -m epochal.cli.demo.driver FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import DeltaSink, EpochWriter, RollingFileSink, session
from epochal.cli.demo.orders import SCHEMA
from epochal.cli.demo.places import Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(root: str) -> None:
    """Run both queries to their end."""
    places = Places(Path(root))
    spark = session(
        "epochal demo",
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            # Each start runs a few small batches: compiling and re-planning them would take longer than they do.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
            # A killed JVM does not clean up: its files must be in the folder that is removed at the end.
            "spark.local.dir": str(places.scratch),
            "spark.driver.extraJavaOptions": (
                f"-Djava.io.tmpdir={places.scratch} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            ),
        },
    )
    orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(places.incoming))

    writer = EpochWriter(
        RollingFileSink(str(places.by_day), name="by_day", format="json", bucket_by=["day"]),
        DeltaSink(str(places.lake), name="lake", partition_by=["region"]),
    )
    exact = writer.start(
        orders.writeStream.trigger(availableNow=True).option("checkpointLocation", str(places.exact_checkpoint))
    )

    def append(frame: DataFrame, epoch: int) -> None:  # noqa: ARG001  # the usual signature
        frame.write.mode("append").partitionBy("region").json(str(places.plain))

    plain = (
        orders.writeStream.foreachBatch(append)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(places.plain_checkpoint))
        .start()
    )
    exact.awaitTermination()
    plain.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
