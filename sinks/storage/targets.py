"""Where targets may be, and whether they can be made and written to. Changes nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage import connect
from epochal.sinks.storage.hadoop import resolve, running_session
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.errors import Refused
from epochal.txn.files import is_local, local_path
from epochal.txn.object_paths import is_object_store, is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def resolve_target(path: str, spark: SparkSession | None = None) -> tuple[SinkFiles, str]:
    """As `resolve`, and S3 besides: Spark writes there by S3A, and everything else is done without Spark."""
    if is_object_store(path) and not is_s3(path):
        raise Refused(
            f"{path}: targets are kept on local disks, Hadoop file systems and S3; on this store epochal keeps "
            "journals only. Nothing was written. Name another place; docs/objects.md says what was tried"
        )
    if not is_s3(path):
        return resolve(path, spark)
    if connect.is_connect(spark or running_session()):
        raise Refused(
            f"{path}: on Spark Connect only local disks and HDFS (by WebHDFS) can be reached. Nothing was written. Use "
            "one of them, or a classic SparkSession"
        )
    from epochal.sinks.storage.objects import open_target

    return open_target(path)


def check_writable(sink: str, target: str, spark: SparkSession | None = None) -> None:
    """Refuse a local folder that cannot be written to, and S3 if the session cannot. Others say so when used."""
    if is_local(target) and (why := why_unwritable(target)):
        raise Refused(
            f"sink {sink!r}: {why}. Nothing was written. Correct the sink's path, or let this user write there"
        )
    if is_s3(target) and spark is not None and not has_s3a(spark):
        raise Refused(
            f"sink {sink!r}: {target} is on S3, and this session has no S3A to write there. Nothing was written. Start "
            "it with epochal.session(..., s3=True), or with the settings of epochal.s3_settings()"
        )


def has_s3a(spark: SparkSession) -> bool:
    """Whether a session can read and write S3."""
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(S3A))


def why_unwritable(target: str) -> str | None:
    """Why a local folder cannot be made or written to; None if it can."""
    path = local_path(target)
    there = path
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        what = "is a link that leads to no folder" if os.path.islink(there) else "is not a folder"
        return f"{there} {what}" + (f", so {path} cannot be made" if there != path else "")
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{path}: this user may not write in {there}"
    return None
