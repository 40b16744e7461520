"""The SparkSession of configured streams: that of spark-submit, or one that is made from ``[spark]``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from epochal.sinks.storage.hadoop_errors import in_short
from epochal.spark_plugins.session import quiet_session, session
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it runs
EMPTY_CHECK = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
MASTER, APP_NAME = "spark.master", "spark.app.name"


def is_submitted() -> bool:
    """Whether spark-submit runs this program: then the session has its settings already."""
    return GATEWAY in os.environ


def submitted_session() -> SparkSession:
    """The session of spark-submit."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    if spark.sparkContext.getConf().get(EMPTY_CHECK) is None:
        # As in `epochal.session`: Spark would refuse a checkpoint whose driver died while it wrote offsets/0.
        spark.conf.set(EMPTY_CHECK, "false")
    return spark


def own_session(
    settings: Mapping[str, str], *, master: str | None = None, output: int | None = None, s3: bool = False
) -> SparkSession:
    """A session from the settings of a file; `master` overrides theirs. What Spark prints goes to `output`."""
    from pyspark.errors import PySparkException

    others = {key: text for key, text in settings.items() if key not in (MASTER, APP_NAME)}
    name, where = settings.get(APP_NAME, "epochal"), master or settings.get(MASTER, "local[*]")
    try:
        if output is not None:
            return quiet_session(name, master=where, conf=others, output=output, s3=s3)
        return session(name, master=where, conf=others, s3=s3)
    except (Py4JError, PySparkException) as fault:
        reason = in_short(fault) if isinstance(fault, Py4JError) else str(fault).partition("\n")[0]
        raise Refused(f"Spark could not start on {where}: {reason}. Nothing was started") from fault


def differences(spark: SparkSession, wanted: Mapping[str, str]) -> list[str]:
    """Settings of a file that the session of spark-submit does not have: they would be ignored."""
    there = {**dict(spark.sparkContext.getConf().getAll()), **dict(spark.conf.getAll)}
    return [
        f"{key}: a session that spark-submit has made gets no settings from a file. Pass it to spark-submit, by --conf "
        "or --properties-file"
        for key, text in wanted.items()
        if there.get(key) != text
    ]
