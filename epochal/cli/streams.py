"""From what the user names on the command line to a checkpoint, its journals and its sinks.

Local paths need no Spark and must not load it: the commands answer in a blink; nor does HDFS, if EPOCHAL_WEBHDFS says
where its HTTP door is. A session is started only when something lies on another Hadoop file system.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from epochal.sinks.config.kinds import GROUP, class_of
from epochal.sinks.storage import webhdfs
from epochal.sinks.storage.hadoop import resolve, start_on_demand
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.errors import Refused
from epochal.txn.files import Files, is_local, join
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal, scratch_beside
from epochal.txn.model import Json, lineage_of
from epochal.txn.participant import Participant
from epochal.txn.reaching import reaching
from epochal.txn.recovery import Sinks, check_belongs


@dataclass(frozen=True)
class Stream:
    """One query: its checkpoint, and the journal beside it or elsewhere."""

    path: str
    checkpoint: SparkCheckpoint
    files: Files  # of the journal
    journal_path: str

    def journal_of(self, incarnation: int) -> Journal:
        return Journal(
            self.files, self.journal_path if incarnation == 1 else f"{self.journal_path.rstrip('/')}~{incarnation}"
        )

    @cached_property
    def current(self) -> tuple[int, Journal]:
        """The incarnation in use and its journal; refused if it is not this checkpoint's."""
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
        """The sinks that the journal describes now."""
        return Sinks(self.journal.read(), build, scratch=scratch_beside(self.journal_path))


def open_stream(checkpoint: str, journal: str | None) -> Stream:
    """The stream of a checkpoint; refused if there is none, or none that epochal has written."""
    start_on_demand(start_spark)
    files, path = reach(checkpoint)
    # Resolved on its own only if the user named it: beside the checkpoint it is on the same file system.
    journal_files, journal_path = reach(journal) if journal else (files, join(path, "epochal"))
    stream = Stream(path, SparkCheckpoint(files, path), journal_files, journal_path)
    with reaching(f"the checkpoint {path}", "Name the checkpointLocation of a query, as a user who may read it"):
        if not files.names(path):
            raise Refused(f"{path}: there is no such folder, or it is empty. Name the checkpointLocation of a query")
        _ = stream.query
    with reaching(f"the journal {journal_path}", "Name it by --journal, as a user who may read it"):
        _ = stream.current
    return stream


def reach(path: str) -> tuple[Files, str]:
    """The file operations for a path, and the path in full; Spark is started only if it must be."""
    if _needs_spark(path):
        start_spark(path)
    return resolve(path)


def _needs_spark(path: str) -> bool:
    return not is_local(path) and not webhdfs.reaches(path)


def build(description: Mapping[str, Json]) -> Participant[Any]:
    """The participant that a journal describes."""
    kind = str(description.get("type", ""))
    place = description.get("staging", description.get("target"))  # where its files are
    if isinstance(place, str) and _needs_spark(place):
        start_spark(place)
    found = class_of(kind)
    if found is not None:
        return found.from_description(description)
    raise Refused(
        f"sink {description.get('name')!r}: no participant of type {kind!r} is installed here; install the package "
        f"that has it (its entry point is in the group {GROUP!r})"
    )


def start_spark(path: str, master: str = "local[1]") -> None:
    """A session for what lies on a Hadoop file system, or has to be read row by row; one is enough."""
    module = sys.modules.get("pyspark.sql")
    if module is not None and module.SparkSession._instantiatedSession is not None:
        return
    from epochal.spark_plugins.session import session

    print(f"starting Spark to reach {path}", file=sys.stderr)
    session("epochal", master=master)
