"""A driver of the stream that runs until it is killed.

EPOCHAL_FAILPOINTS=after-prepared=kill@3 python -m integration_tests.old_versions.driver ROOT
"""

from __future__ import annotations

import sys
from pathlib import Path

import epochal
from integration_tests.old_versions.streams import Place, sinks_of, to_checkpoint
from integration_tests.spark.driver import PLAIN, _compact_often
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED


def main(place: Place) -> None:
    """Run the stream; there is always a next epoch."""
    _compact_often()
    spark = epochal.session("driver", master="local[2]", conf={**CHEAP, **SHORT_LIVED, **LOOPBACK, **PLAIN})
    epochal.EpochWriter(*sinks_of(place)).start(to_checkpoint(spark, place)).awaitTermination()


if __name__ == "__main__":
    main(Place(Path(sys.argv[1])))
