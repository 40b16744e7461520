"""Spark's own Kafka source, which does not come with PySpark: its jars, and whether a session has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins.jars import JarSet, fetched
from epochal.spark_plugins.local_disk import spark_defaults
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = "org.scala-lang*:*,com.*:*,org.lz4:*,at.*:*,org.xerial*:*,org.slf4j:*,org.apache.spark:spark-tags_2.13"
SOURCE = JarSet(
    title="Spark's Kafka source",
    size="10 MB",
    packages=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    excluded=f"{OTHERS},org.apache.spark:spark-token-provider-kafka-0-10_2.13",
)
# By itself: its 4.2.0, which the source asks for, could not be fetched where this was tried. The source only asks it
# for delegation tokens.
TOKENS = JarSet(
    title="Kafka's token provider",
    size="65 KB",
    packages=("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
    excluded=f"{OTHERS},org.apache.kafka:*",
)
PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def kafka_settings(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a SparkSession that can read from Kafka. The first call fetches the jars.

    If you build the session yourself, apply them before its JVM starts::

        settings = epochal.delta_settings()
        for key, value in {**settings, **epochal.kafka_settings(settings)}.items():
            builder = builder.config(key, value)

    Your own jars stay in effect: those in `given`, else those of ``spark-defaults.conf``.
    """
    configured = {**spark_defaults(), **(given or {})}
    jars = [*filter(None, configured.get("spark.jars", "").split(",")), *map(str, [*fetched(SOURCE), *fetched(TOKENS)])]
    return {"spark.jars": ",".join(dict.fromkeys(jars))}


def check_session(spark: SparkSession) -> None:
    """Refuse a session whose JVM was started without the jars."""
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(PROVIDER):
        raise Refused(
            "the JVM is already running without Spark's Kafka source. Pass epochal.kafka_settings() to what starts it"
        )
