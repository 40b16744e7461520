"""Spark's own Kafka source, which does not come with PySpark: its jars, and whether a session has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins.jars import JarSet, fetched
from epochal.spark_plugins.local_disk import spark_defaults
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = JarSet(
    title="Kafka's source",
    size="7 MB",
    packages=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        # The newest that could be fetched where this was tried. It only knows what to do with delegation tokens.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",  # with which 4.2.0 of the source is built
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    excluded="org.scala-lang*:*,com.*:*,org.lz4:*,at.*:*,org.xerial*:*,org.slf4j:*,org.apache.spark:spark-tags_2.13",
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
    jars = [*filter(None, configured.get("spark.jars", "").split(",")), *map(str, fetched(JARS))]
    return {"spark.jars": ",".join(dict.fromkeys(jars))}


def check_session(spark: SparkSession) -> None:
    """Refuse a session whose JVM was started without the jars."""
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(PROVIDER):
        raise Refused(
            "the JVM is already running without Spark's Kafka source. Pass epochal.kafka_settings() to what starts it"
        )
