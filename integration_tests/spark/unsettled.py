"""A job that uses `foreachBatch(writer)` and Spark's own handle, in a session without Delta's jars.

First with an upsert, which that session cannot do; then with a sink whose rows are lost between decision and commit.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

import epochal
from epochal.txn.errors import DataLost
from integration_tests.spark.driver import PLAIN
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED
from integration_tests.spark.queries import Meddled, archive, stream
from integration_tests.spark.world import World


def main(root: str) -> None:
    atexit.register(print, "a handler that was there before")
    world = World(Path(root))
    spark = epochal.session("unsettled", master="local[2]", conf={**CHEAP, **SHORT_LIVED, **LOOPBACK, **PLAIN})

    def run(writer: epochal.EpochWriter, checkpoint: Path) -> None:
        to = stream(spark, world).writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        to.foreachBatch(writer).start().awaitTermination()

    upsert = epochal.DeltaSink(str(world.table), mode="upsert", keys=["id"])
    try:
        run(epochal.EpochWriter(upsert), world.root / "other")
    except StreamingQueryException:
        print("the upsert was refused")

    def lose(*_: Any) -> None:
        raise DataLost("its rows are gone")

    run(epochal.EpochWriter(Meddled(archive(world), lose)), world.checkpoint)
    print("Spark says that all is well")


if __name__ == "__main__":
    main(sys.argv[1])
