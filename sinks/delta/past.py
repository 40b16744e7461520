"""A table as an epoch left it: the version that the epoch made, and the rows of that version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.sinks.delta.commit import HISTORY, Committer
from epochal.sinks.delta.table import jvm
from epochal.sinks.delta.table.commit_notes import committed_epochs
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.errors import CutGone, Refused
from epochal.txn.files import is_local, local_path
from epochal.txn.model import lineage_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def version_at(committer: Committer, target: str, lineage: str, epoch: int) -> tuple[int, list[str]]:
    """The version that an epoch of a stream made, and the other streams that have committed before it.

    CutGone if the table's history has no such version any more.
    """
    table, state = committer.table()
    if state is None:
        raise CutGone(f"{target} is not a Delta table any more: it was removed or moved")
    for limit in (HISTORY, None):  # the epoch is nearly always among the last ones
        found = list(committed_epochs(table.commits(limit)))
        version = next((e.version for e in found if (e.lineage, e.epoch) == (lineage, epoch)), None)
        if version is not None:
            return version, sorted({e.lineage for e in found if e.lineage != lineage and e.version < version})
    raise CutGone(
        f"{target}: its history has no epoch {epoch} of stream {lineage_tag(lineage)}, which the journal has as done. "
        "Its log was cleaned up (delta.logRetentionDuration), or the table was replaced or restored from a copy"
    )


def read_version(spark: SparkSession, files: SinkFiles, target: str, version: int) -> DataFrame:
    """The rows of a version. CutGone if its log entries or its data files have been removed."""
    if lack := jvm.lacks(spark):
        raise Refused(
            f"{target}: to read an earlier version Spark needs Delta's own code, and this session has no {lack}. Use "
            "epochal.session(...), or build your session with the settings of epochal.delta_settings()"
        )
    try:
        newest = spark.read.format("delta").load(spark_path(target))
        frame = spark.read.format("delta").option("versionAsOf", version).load(spark_path(target))
        # Only files that the newest version does not have can have been removed by VACUUM.
        older = sorted({*frame.inputFiles()} - {*newest.inputFiles()})
    except Exception as fault:
        if not jvm.is_refusal(fault):
            raise
        raise CutGone(
            f"{target}: version {version} can no longer be read: {jvm.brief(fault)}. Was its log cleaned up "
            "(delta.logRetentionDuration), or the table replaced?"
        ) from fault
    lengths = files.lengths([local_path(name) if is_local(name) else name for name in older])
    gone = [name for name, length in zip(older, lengths, strict=True) if length is None]
    if gone:
        raise CutGone(
            f"{target}: version {version} can no longer be read: VACUUM has removed {len(gone)} of its files, such as "
            f"{gone[0]}. Let VACUUM retain what readers may still read (delta.deletedFileRetentionDuration)"
        )
    return frame
