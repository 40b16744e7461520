"""Hadoop's S3A, by which Spark reaches S3. It does not come with PySpark: its jars, and its settings.

Of Amazon's SDK only the modules are fetched that S3A loads: hadoop-aws asks for a bundle of all services, 600 MB.
Credentials stay in the environment: S3A reads the same variables as epochal's own client does, and no setting has them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.sinks.storage.objects.clients import AWS, TRUE
from epochal.sinks.storage.targets import S3A as FILE_SYSTEM
from epochal.sinks.storage.targets import has_s3a
from epochal.spark_plugins import java_jars
from epochal.spark_plugins.jars import JarSet, fetched
from epochal.spark_plugins.local_disk import spark_defaults
from epochal.spark_plugins.store_checkpoints import checkpoint_settings
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("epochal")

HADOOP = "3.5.0"  # PySpark's
SDK = "2.35.4"  # what this Hadoop was built with
MODULES = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
)
S3A = JarSet(
    title="Hadoop's S3A",
    size="13 MB",
    packages=(
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
        *(f"software.amazon.awssdk:{module}:{SDK}" for module in MODULES),
    ),
    # Netty, HttpClient and the logging of Spark are newer.
    excluded=(
        "software.amazon.awssdk:bundle,org.wildfly.openssl:*,io.netty:*,org.apache.httpcomponents:*,org.slf4j:*,"
        "commons-logging:*,commons-codec:*"
    ),
)
# What the class inherits from names classes of all these.
STAGING_NEEDS = (
    "hadoop-client-api-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "spark-core_*.jar",
    "spark-common-utils*_*.jar",
    "scala-library-*.jar",
)
PREFIX = "spark.hadoop.fs.s3a."
SDK_PROVIDERS = "software.amazon.awssdk.auth.credentials"


def s3_settings(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a SparkSession that reads and writes S3 (``s3a://`` or ``s3://``). The first call fetches jars.

    If you build the session yourself, apply them before its JVM starts::

        settings = epochal.delta_settings()
        for key, value in {**settings, **epochal.s3_settings(settings)}.items():
            builder = builder.config(key, value)

    Endpoint and region come from the same variables of the environment as for a journal (``AWS_ENDPOINT_URL``,
    ``AWS_REGION``, ...). Credentials are in none of the settings: S3A reads ``AWS_ACCESS_KEY_ID`` and so on itself, on
    executors of other machines their own. Settings in `given`, or else in ``spark-defaults.conf``, stay in effect.
    One setting is Spark's manager of checkpoints: that of epochal creates each file on S3 once.
    """
    configured = {**spark_defaults(), **(given or {})}
    jars = [*filter(None, configured.get("spark.jars", "").split(",")), *map(str, [*fetched(S3A), *staging_jar()])]
    settings = {name: value for name, value in store_settings(os.environ).items() if name not in configured}
    with_jars = {**configured, "spark.jars": ",".join(dict.fromkeys(jars))}
    return {**settings, **checkpoint_settings(with_jars)}


def staging_jar() -> list[Path]:
    """The jar by which Spark stages files without moving them (`sinks/spark/staging.py`). None if it cannot be made."""
    try:
        return [java_jars.compiled("java_staging", "staging", STAGING_NEEDS)]
    except Refused as fault:
        log.warning("files are staged by Hadoop's own committer, which is slower on S3: %s", fault)
        return []


def store_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What S3A has to know of the store, without credentials.

    >>> store_settings({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})["spark.hadoop.fs.s3a.path.style.access"]
    'true'
    """
    endpoint = next((environment[name] for name in AWS.endpoint_variables if environment.get(name)), "")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else "")
    found = {
        f"{PREFIX}aws.credentials.provider": ",".join(_providers(environment)),
        "spark.hadoop.fs.s3.impl": FILE_SYSTEM,  # s3:// is another spelling of s3a://
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    }
    if endpoint:
        by_host = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in TRUE
        found[f"{PREFIX}endpoint"] = endpoint
        found[f"{PREFIX}path.style.access"] = "false" if by_host else "true"
        found[f"{PREFIX}connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if region:
        found[f"{PREFIX}endpoint.region"] = region
    return found


def _providers(environment: Mapping[str, str]) -> list[str]:
    """Where credentials come from, in the order of epochal's own client."""
    web = "AWS_WEB_IDENTITY_TOKEN_FILE" in environment  # asked without it, this one fails in a way that ends the search
    return [
        f"{SDK_PROVIDERS}.EnvironmentVariableCredentialsProvider",
        *([f"{SDK_PROVIDERS}.WebIdentityTokenFileCredentialsProvider"] if web else []),
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",  # of a container or an instance
    ]


def check_s3a(spark: SparkSession) -> None:
    """Refuse a session whose JVM was started without the jars."""
    if not has_s3a(spark):
        raise Refused("the JVM is already running without Hadoop's S3A. Pass epochal.s3_settings() to what starts it")
