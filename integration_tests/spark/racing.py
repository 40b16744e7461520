"""One of two drivers that want to write ``offsets/N`` of one checkpoint at the same moment, N by N.

    python -m integration_tests.spark.racing HOME NAME OTHER RACES on|off

By Spark's own log of offsets. At the end ``HOME/NAME.json`` has the numbers that this one was answer it had written.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import epochal
from integration_tests.spark.jvm import CHEAP, LOOPBACK
from integration_tests.spark.waiting import is_early


def main(home: Path, name: str, other: str, races: int, switch: str) -> None:
    """Race, and say what was won."""
    conf = {**CHEAP, **LOOPBACK, "spark.jars": "", "spark.epochal.localDisk": str(switch == "on").lower()}
    spark = epochal.session("racing", master="local[1]", conf=conf)
    jvm: Any = spark._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    log = streaming.OffsetSeqLog(spark._jsparkSession, str(home / "offsets"), False)
    nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    offsets = streaming.OffsetSeq(nothing, jvm.scala.Option.empty())
    won = []
    for number in range(races):
        (home / f"{name}-{number}").touch()
        rival = home / f"{other}-{number}"
        began = time.monotonic()
        while not rival.exists():  # without a rest: both must set off at once
            assert is_early(began), f"waited in vain for {rival.name}"
        try:
            if log.add(number, offsets):
                won.append(number)
        except Exception as fault:  # of whatever kind pyspark makes it
            if "SparkConcurrentModificationException" not in str(fault):
                raise
    (home / f"{name}.json").write_text(json.dumps(won))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
