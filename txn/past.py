"""What a store can show of an earlier epoch. Optional: `Participant.past`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from epochal.txn.model import Description, Json


@dataclass(frozen=True, slots=True)
class SinkAt:
    """One sink at one epoch: all that its store needs to find that state again."""

    name: str
    lineage: str
    epoch: int
    description: Description
    starts: Mapping[int, Description] = field(default_factory=dict)  # by generation: up to then, with this target
    notes: tuple[str, ...] = ()  # what a reader has to know: epochs that this target never got, and where they are


class NoPast(Exception):
    """A sink whose state at an epoch cannot be found again; the text says why. A cut leaves it out."""


class HasPast(Protocol):
    """A participant whose store can show what it held after an earlier epoch."""

    def pin(self, at: SinkAt) -> dict[str, Json]:
        """What identifies that state in the store, such as a version. CutGone if the store has it no more.

        NoPast if it was never recorded how to read it.
        """

    def read_at(self, spark: Any, at: SinkAt, pin: Mapping[str, Json]) -> Any:
        """The rows of that state, as a DataFrame. CutGone if the store has it no more."""
