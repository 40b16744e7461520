"""How Spark's tasks hand in what they have written to a folder that nobody reads.

On S3 a file is moved by copying it, and Hadoop's committers ask for each step some ten times whether folders are there.
What is staged needs neither: the driver compares it with what the tasks report. So tasks write to the folder itself
(`StagedFiles.java`, in a jar of `epochal.s3_settings`). Without that jar files are moved once, not twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.txn.object_paths import is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROTOCOL = "spark.sql.sources.commitProtocolClass"
STAGED = "epochal.StagedFiles"
MOVED_ONCE = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}


def settings_for(spark: SparkSession, folder: str) -> dict[str, str]:
    """The settings for a write to a folder."""
    if not is_s3(folder):
        return {}
    jvm: Any = spark._jvm
    return {PROTOCOL: STAGED} if jvm.org.apache.spark.util.Utils.classIsLoadable(STAGED) else MOVED_ONCE
