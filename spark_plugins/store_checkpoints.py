"""Spark's checkpoint on S3: by which of Spark's checkpoint managers it may be written, and which are refused.

The protocol needs that ``offsets/N`` and ``commits/N`` appear whole and once: a name that exists is never replaced, so
that of two drivers one is told. Spark writes its checkpoint through a manager that is chosen by a setting. None of its
own does so on S3; the one in ``java_checkpoints/`` does, by the condition that S3A has for a single request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.sinks.storage import connect
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.spark_plugins import java_jars
from epochal.txn.errors import Refused
from epochal.txn.object_paths import is_object_store, is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER = "epochal.StoreCheckpoints"
NEEDED = (
    "spark-sql_*.jar",
    "spark-sql-api_*.jar",
    "spark-core_*.jar",
    "spark-common-utils*_*.jar",
    "scala-library-*.jar",
    "hadoop-client-api-*.jar",
    "slf4j-api-*.jar",
)
PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing."
_COPIES = (
    "on S3 it looks whether a name is free, and then copies a temporary object to it without a condition: of two "
    "drivers that write offsets/N or commits/N both do, and neither is told"
)
# Each was run against a store that keeps conditions: docs/objects.md has what happened.
REFUSED: Mapping[str, str] = {
    f"{PACKAGE}FileContextBasedCheckpointFileManager": _COPIES,
    f"{PACKAGE}FileSystemBasedCheckpointFileManager": _COPIES,
    "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager": (
        "it looks whether a name is free, and then writes the object without a condition: of two drivers that write "
        "offsets/N or commits/N both do, and neither is told"
    ),
}
DEFAULT = f"{PACKAGE}FileContextBasedCheckpointFileManager"


def checkpoint_settings(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings by which Spark writes a checkpoint on S3. The first call compiles the jar.

    A manager in `given` stays. Checkpoints on other file systems are written as before.
    """
    configured = given or {}
    jar = java_jars.compiled("java_checkpoints", "checkpoints", NEEDED)
    jars = [*filter(None, configured.get("spark.jars", "").split(",")), str(jar)]
    return {SETTING: configured.get(SETTING, MANAGER), "spark.jars": ",".join(dict.fromkeys(jars))}


def resolve_checkpoint(location: str, spark: SparkSession | None = None) -> tuple[SinkFiles, str]:
    """The file operations for a checkpoint or for savepoints, and the path in full. S3 is reached without Spark."""
    if is_object_store(location) and not is_s3(location):
        raise Refused(
            f"{location}: checkpoints and savepoints are kept on local disks, HDFS and S3; on this store epochal keeps "
            "journals only. Nothing was written. Name another place"
        )
    if not is_s3(location):
        return resolve(location, spark)
    from epochal.sinks.storage.objects import open_files

    return open_files(location)


def check_manager(checkpoint: str, spark: SparkSession) -> None:
    """Refuse a checkpoint on S3 that the session would write by another manager."""
    if not is_s3(checkpoint):
        return
    if connect.is_connect(spark):
        raise Refused(
            f"{checkpoint}: on Spark Connect a checkpoint must be on a local disk or HDFS. Nothing was written. Use "
            "one of them, or a classic SparkSession"
        )
    if why := why_refused(str(spark.conf.get(SETTING, "") or "")):
        raise Refused(
            f"{checkpoint}: Spark must write a checkpoint on an object store by a manager that creates each file once. "
            f"{why}. Nothing was written. Use epochal.session(..., s3=True), or build the session with the settings of "
            f"epochal.s3_settings(), which set {SETTING}={MANAGER}"
        )


def why_refused(manager: str) -> str | None:
    """Why a checkpoint on S3 must not be written by a manager; empty for Spark's default. None if it may be.

    >>> why_refused("epochal.StoreCheckpoints"), why_refused("my.Manager")
    (None, 'my.Manager: epochal does not know it')
    """
    if manager == MANAGER:
        return None
    name = manager or DEFAULT
    shown = name.rpartition(".")[2] + ("" if manager else ", Spark's default") if name in REFUSED else name
    return f"{shown}: {REFUSED.get(name, 'epochal does not know it')}"
