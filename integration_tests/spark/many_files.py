"""A driver whose epoch has a thousand files for each task. Started by tests, in a process of its own.

python -m integration_tests.spark.many_files ROOT MASTER
"""

from __future__ import annotations

import sys
from pathlib import Path

import epochal
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED

BUCKETS = 1000
TASKS = 2
ROWS = BUCKETS * TASKS * 2
# So that an executor that does not answer is given up within seconds.
IMPATIENT = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
}


def main(root: Path, master: str) -> None:
    """Write what is in the source, in one epoch."""
    conf = {**CHEAP, **SHORT_LIVED, **LOOPBACK, **IMPATIENT, "spark.jars": ""}
    spark = epochal.session("many files", master=master, conf=conf)
    frame = spark.readStream.schema("rows long").json(str(root / "source"))
    numbers = frame.selectExpr("explode(sequence(0L, rows - 1)) AS id").repartition(TASKS)
    writer = numbers.selectExpr("id", f"id % {BUCKETS} AS bucket").writeStream.trigger(availableNow=True)
    sink = epochal.RollingFileSink(str(root / "target"), format="json", bucket_by=["bucket"])
    epochal.EpochWriter(sink).start(writer.option("checkpointLocation", str(root / "checkpoint"))).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
