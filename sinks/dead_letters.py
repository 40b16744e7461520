"""Rows that a sink cannot hold go to another one, in the same epoch: output + dead letters = input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from epochal.txn.model import Attempt, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Rejecting(Protocol):
    """A sink that can tell which rows it will not have."""

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that it will not have, with the reason for each."""


class DeadLetters:
    """A participant of its own: the sink that gets what another one rejects."""

    def __init__(self, origin: Rejecting, letters: Participant[DataFrame]) -> None:
        self._origin, self._letters = origin, letters

    def __repr__(self) -> str:
        return f"{self._letters!r}, the dead letters of {self._origin!r}"

    @property
    def name(self) -> str:
        return self._letters.name

    def describe(self) -> dict[str, Json]:
        return self._letters.describe()

    def open(self, lineage: str) -> Memory:
        return self._letters.open(lineage)

    def enrol(self, lineage: str, *, adopts: str | None) -> None:
        self._letters.enrol(lineage, adopts=adopts)

    def stage(self, attempt: Attempt, rows: DataFrame, *, offsets: str) -> Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counter = Observation()
        watched = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
        found = self._letters.stage(attempt, self._origin.rejected(watched), offsets=offsets)
        seen = int(counter.get.get("rows", 0))
        return Staged(found.handle, found.rows, seen, digest=found.digest)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        return self._letters.commit(attempt, handle)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._letters.abort(attempt, handle)

    def leftovers(self, lineage: str) -> list[Attempt]:
        return self._letters.leftovers(lineage)


def with_dead_letters(sinks: Sequence[Any]) -> tuple[Any, ...]:
    """The sinks, and behind them those that get what they reject."""
    found = [DeadLetters(sink, letters) for sink in sinks if (letters := getattr(sink, "dead_letters", None))]
    return (*sinks, *found)
