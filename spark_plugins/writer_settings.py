"""What an `EpochWriter` was given, checked: all that its runs need. It goes to a Spark Connect server as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.metrics import observer_of
from epochal.spark_plugins.coordinators import Coordinators
from epochal.spark_plugins.remote.started import RemoteQuery
from epochal.txn.choices import Choices
from epochal.txn.events import Observer
from epochal.txn.participant import Participant
from epochal.txn.state.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """The options of one writer."""

    sinks: tuple[Participant[DataFrame], ...]
    eager: bool
    journal: str | None
    state: Policy | None
    recovery_objective: float | None  # seconds
    max_pending: int
    settle_timeout: float
    takeover_timeout: float
    choices: Choices
    cache: bool
    observers: tuple[Observer, ...]
    metrics: str | None
    stream: str | None = None  # its name in Spark's settings, if it was made from them
    remote: RemoteQuery | None = None  # the query, in the process of a Spark Connect server

    @property
    def coordinators(self) -> Coordinators:
        return Coordinators(
            sinks=self.sinks, eager=self.eager, journal=self.journal, choices=self.choices, state=self.state
        )

    def all_observers(self) -> Sequence[Observer]:
        """With that of the metrics, which are served from now on. Refused if another process uses their address."""
        return self.observers if self.metrics is None else (observer_of(self.metrics), *self.observers)
