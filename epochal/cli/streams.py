"""Opens the checkpoint that the user names, its journals and its sinks.

Local paths do not load Spark, so that the commands answer at once. Nor does HDFS if EPOCHAL_WEBHDFS has its HTTP
address. Only other Hadoop file systems start a session. What is on an object store is reached without Spark.
"""

from __future__ import annotations

import logging
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from epochal.cli import progress
from epochal.sinks.config.kinds import GROUP, class_of
from epochal.sinks.storage import webhdfs
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.sinks.storage.journals import resolve_journal, scratch_for
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.targets import resolve_target
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.restore_marks import refuse_unfinished_restore
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.access import refuse_unreachable
from epochal.txn.errors import Refused, SinkUnavailable
from epochal.txn.files import Files, is_local, join
from epochal.txn.incarnations import current_journal, incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.model import Json, lineage_of
from epochal.txn.object_paths import is_object_store, is_s3
from epochal.txn.participant import Participant
from epochal.txn.recovery import Sinks, check_belongs

log = logging.getLogger("epochal")


@dataclass(frozen=True)
class Stream:
    """One query: its checkpoint, and the journal beside it or elsewhere."""

    path: str
    checkpoint: SparkCheckpoint
    files: Files  # of the journal
    journal_path: str
    named_journal: str | None = None  # as the user named it; None for the one in the checkpoint

    def command(self, name: str, *options: str) -> str:
        """An epochal command for this stream, to be copied into a shell."""
        elsewhere = [] if self.named_journal is None else ["--journal", self.named_journal]
        return shlex.join(["epochal", name, self.path, *elsewhere, *options])

    def journal_of(self, incarnation: int) -> Journal:
        return Journal(self.files, incarnation_path(self.journal_path, incarnation))

    @cached_property
    def current(self) -> tuple[int, Journal]:
        """The incarnation in use and its journal. Refused if the journal belongs to another checkpoint."""
        incarnation, journal = current_journal(self.journal_of)
        check_belongs(journal, self.query)
        return incarnation, journal

    @cached_property
    def query(self) -> str:
        return self.checkpoint.query_id()

    @property
    def journal(self) -> Journal:
        return self.current[1]

    @property
    def lineage(self) -> str:
        return lineage_of(self.query, self.current[0])

    def sinks(self) -> Sinks:
        """The sinks that the journal describes."""
        return Sinks(self.journal.read(), build, scratch=self.scratch)

    @property
    def scratch(self) -> str:
        """Where sinks stage whose store has no place for it."""
        return scratch_for(self.journal_path, self.path)


def open_stream(checkpoint: str, journal: str | None) -> Stream:
    """The stream of a checkpoint. Refused if there is none, or none that epochal has written."""
    start_on_demand(start_spark)
    files, path = reach(checkpoint)
    # Resolved on its own only if the user named it: beside the checkpoint it is on the same file system.
    journal_files, journal_path = reach_journal(journal) if journal else (files, join(path, "epochal"))
    stream = Stream(path, SparkCheckpoint(files, path), journal_files, journal_path, journal)
    with refuse_unreachable(
        f"the checkpoint {path}", "Name the checkpointLocation of a query, as a user who may read it"
    ):
        if not files.names(path):
            raise Refused(f"{path}: there is no such folder, or it is empty. Name the checkpointLocation of a query")
        refuse_unfinished_restore(files, path)
        _ = stream.query
    with refuse_unreachable(f"the journal {journal_path}", "Name it by --journal, as a user who may read it"):
        _ = stream.current
    return stream


def reach(path: str) -> tuple[SinkFiles, str]:
    """The file operations for a path, and the full path. Starts Spark only if it is needed."""
    if _needs_spark(path):
        start_spark(path)
    return resolve_checkpoint(path)


def reach_journal(path: str) -> tuple[Files, str]:
    """The same for a journal, which may be on an object store."""
    return resolve_journal(path) if is_object_store(path) else reach(path)


def reach_target(path: str) -> tuple[SinkFiles, str]:
    """The same for a target of files, which may be on S3."""
    if _needs_spark(path):
        start_spark(path)
    return resolve_target(path)


def _needs_spark(path: str) -> bool:
    return not is_local(path) and not is_object_store(path) and not webhdfs.reaches(path)


def build(description: Mapping[str, Json]) -> Participant[Any]:
    """The participant that a journal describes."""
    kind = str(description.get("type", ""))
    place = description.get("staging", description.get("target"))  # where its files are
    # A target such as cassandra:host/keyspace.table is no path: that sink stages beside the journal.
    if isinstance(place, str) and not place.startswith(f"{kind}:") and _needs_spark(place):
        start_spark(place)
    try:
        found = class_of(kind)
    except ImportError as fault:
        raise SinkUnavailable(
            f"sink {description.get('name')!r}: its type {kind!r} needs a package that is not installed here: {fault}"
        ) from fault
    if found is not None:
        return found.from_description(description)
    raise SinkUnavailable(
        f"sink {description.get('name')!r}: no participant of type {kind!r} is installed here; install the package "
        f"that has it (its entry point is in the group {GROUP!r})"
    )


def start_spark(path: str, master: str = "local[1]") -> None:
    """Start a session to reach a Hadoop file system or to read rows, unless there is one. Spark's own output is hidden.

    With ``--verbose`` it is not.
    """
    module = sys.modules.get("pyspark.sql")
    if module is not None and module.SparkSession._instantiatedSession is not None:
        return
    with progress.task(f"starting Spark to reach {path}"):
        from pyspark.errors import PySparkRuntimeError

        from epochal.spark_plugins.session import quiet_session, session

        if log.isEnabledFor(logging.INFO):
            session("epochal", master=master, s3=is_s3(path))
            return
        with tempfile.TemporaryFile() as output:
            try:
                quiet_session("epochal", master=master, output=output, s3=is_s3(path))
            except PySparkRuntimeError as fault:
                output.seek(0)
                last = output.read().decode(errors="replace").strip().splitlines()[-3:]
                raise Refused(
                    f"Spark could not be started to reach {path}: {'; '.join(last) or fault}. It needs Java 17 or 21: "
                    "set JAVA_HOME. -v shows all that Spark prints"
                ) from fault
