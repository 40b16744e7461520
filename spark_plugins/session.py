"""A ready SparkSession for people who have none of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    # Workers must run the interpreter that has the driver's packages, not the first python3 they find.
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark would refuse a checkpoint whose driver died while it wrote offsets/0. What that check is for,
    # another query's checkpoint, the journal sees.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def session(
    app_name: str = "epochal", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A SparkSession with settings that suit a stream; `conf` overrides them.

    Nothing here is needed by the sinks: any classic SparkSession will do.
    """
    from pyspark.sql import SparkSession

    settings = {**DEFAULTS, **(LOCAL_DEFAULTS if master.startswith("local") else {}), **(conf or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
