"""A ready SparkSession, for programs that do not build their own."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING

from epochal.spark_plugins import jars, local_disk
from epochal.spark_plugins.kafka import check_session, kafka_settings
from epochal.spark_plugins.s3 import check_s3a, s3_settings
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark would refuse a checkpoint whose driver died while it wrote offsets/0. The check is meant to detect
    # another query's checkpoint, which the journal detects too.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    # Delta reads a table's log in 50 tasks by default. On one machine that takes seconds for each commit.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def session(
    app_name: str = "epochal",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    kafka: bool = False,
    s3: bool = False,
) -> SparkSession:
    """A SparkSession with settings that suit a stream; `conf` overrides them.

    If ``epochal[delta]`` is installed, it has Delta's own code too. With `kafka` it can read from Kafka: the first call
    fetches the jars of Spark's Kafka source. With `s3` it can read and write S3, by Hadoop's S3A: the first call
    fetches its jars, and the environment says where the store is (`s3_settings`). Local files are written without
    forked processes (`local_disk_settings`; ``spark.epochal.localDisk=false`` turns that off). The sinks do not depend
    on these settings: any classic SparkSession works.
    """
    return _session(app_name, master, conf or {}, kafka=kafka, s3=s3)


def quiet_session(
    app_name: str, *, master: str, output: IO[bytes] | int, conf: Mapping[str, str] | None = None, s3: bool = False
) -> SparkSession:
    """As `session`, for command lines: what the JVM prints, from its first line to its last, goes to `output`."""
    return _session(app_name, master, conf or {}, output=output, s3=s3)


def _session(
    app_name: str,
    master: str,
    given: Mapping[str, str],
    *,
    output: IO[bytes] | int | None = None,
    kafka: bool = False,
    s3: bool = False,
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Workers must run the interpreter that has the driver's packages, not the first python3 on the PATH. Only
    # spark-submit reads the setting for it.
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    local = LOCAL_DEFAULTS if master.startswith("local") else {}
    settings = {**DEFAULTS, **local, **_delta(given), **given, **local_disk.settings_for(master, given)}
    if kafka:
        settings |= kafka_settings(settings)
    if s3:
        settings |= s3_settings(settings)
    if output is not None and SparkContext._gateway is None:
        launched = SparkConf(loadDefaults=False).setAll([*settings.items()])
        gateway = launch_gateway(launched, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if kafka:
        check_session(spark)
    if s3:
        check_s3a(spark)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _delta(given: Mapping[str, str]) -> dict[str, str]:
    """Settings for Delta; none if the user has set their own or it is not installed."""
    if not jars.is_installed() or any(key in given for key in ("spark.jars", "spark.sql.extensions")):
        return {}
    try:
        return jars.delta_settings()
    except (Refused, OSError, TimeoutExpired) as fault:
        log.warning("session started without Delta's own code: %s", fault)
        return {}
