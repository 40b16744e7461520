"""A driver of the examples with operators of their own, both streams at once. Tests start it and kill it.

python -m integration_tests.operators.driver ROOT [--checkpoint NAME] [--partitions N]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import epochal
from epochal.cli import main as command
from examples import fraud, graph
from integration_tests.spark.driver import Ending
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED

STREAMS = {"fraud": fraud.build, "graph": graph.build}
# One partition, as CHEAP has it: each starts a Python worker in each epoch.
CONF = {**CHEAP, **SHORT_LIVED, **LOOPBACK, **epochal.rocksdb_settings()}


def main(root: Path, checkpoint: str, partitions: int | None) -> Ending:
    """Rescale both streams if that is asked for, read all that there is, then end."""
    spark = epochal.session("operators", master="local[2]", conf=CONF)
    if partitions is not None:
        for name in STREAMS:
            assert command(["rescale", str(root / name / checkpoint), "--partitions", str(partitions)]) == 0
    started = []
    for name, build in STREAMS.items():
        home = root / name
        writer, stream = build(spark, str(home / "incoming"), str(home / checkpoint), str(home))
        started.append(writer.start(stream.trigger(availableNow=True)))
    for query in started:
        query.awaitTermination()
    return Ending.DONE


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--checkpoint", default="checkpoint")
    parser.add_argument("--partitions", type=int)
    given = parser.parse_args()
    sys.exit(main(given.root, given.checkpoint, given.partitions))
