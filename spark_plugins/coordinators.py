"""Makes the coordinators of one writer, for checks and for runs, and opens their journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal._version import __version__
from epochal.sinks.storage.journals import resolve_journal, scratch_for
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.choices import Choices
from epochal.txn.coordinator import Coordinator
from epochal.txn.events import Observer
from epochal.txn.files import Files, join
from epochal.txn.incarnations import incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.participant import Participant
from epochal.txn.reporting import stream_name
from epochal.txn.state.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """What all coordinators of one writer have in common."""

    sinks: Sequence[Participant[DataFrame]]
    eager: bool
    journal: str | None
    choices: Choices
    state: Policy | None = None

    def of(
        self, checkpoint: SparkCheckpoint, *, observers: Sequence[Observer] = (), name: str | None = None
    ) -> Coordinator[DataFrame]:
        """The coordinator of a query on this checkpoint, not yet started."""
        place = spark_path(checkpoint.path)  # it is resolved already
        return Coordinator(
            journals=lambda incarnation: open_journal(place, self.journal, incarnation, self.state),
            checkpoint=checkpoint,
            participants=self.sinks,
            eager=self.eager,
            choices=self.choices,
            version=__version__,
            scratch=scratch_for(self.first_journal(checkpoint)[1], place),
            observers=observers,
            stream=stream_name(checkpoint.path, name),
        )

    def first_journal(self, checkpoint: SparkCheckpoint) -> tuple[Files, str]:
        """Where the journal of the first incarnation is."""
        return resolve_journal(self.journal or join(spark_path(checkpoint.path), "epochal"))


def open_journal(checkpoint: str, given: str | None, incarnation: int = 1, policy: Policy | None = None) -> Journal:
    """The journal of a checkpoint, or the one at the location that the user gave."""
    files, path = resolve_journal(given or join(checkpoint, "epochal"))
    return Journal(files, incarnation_path(path, incarnation), policy=policy)
