"""Rows that a sink cannot hold go to another one, in the same epoch: output + dead letters = input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from epochal.txn.errors import BadRows
from epochal.txn.model import Batch, Claim, Json, Staged
from epochal.txn.participant import Participant, Wrapper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Rejecting(Protocol):
    """A sink that knows which rows it rejects."""

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that it rejects, with the reason for each."""


class DeadLetters(Wrapper["DataFrame"]):
    """A participant of its own: the sink that gets what another one rejects."""

    def __init__(self, origin: Rejecting, letters: Participant[DataFrame]) -> None:
        super().__init__(letters)
        self.origin = origin

    def __repr__(self) -> str:
        return f"{self.inner!r}, the dead letters of {self.origin!r}"

    def check_frame(self, rows: DataFrame) -> Sequence[str]:
        """What is wrong with the columns of rejected rows."""
        try:
            rejected = self.origin.rejected(rows)
        except BadRows:
            return []  # the frame does not fit the other sink, which reports it itself
        return self.inner.check_frame(rejected)

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        return self.inner.describe(None if rows is None else self.origin.rejected(rows))

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:
        rejected = None if rows is None else self.origin.rejected(rows)
        return self.inner.claim(claim, version=version, rows=rejected)

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        """Stage the rows that the other sink rejects, of all that there are."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counter = Observation()
        watched = batch.rows.observe(counter, f.count(f.lit(1)).alias("rows"))
        staged = self.inner.stage(replace(batch, rows=self.origin.rejected(watched)))
        return replace(staged, seen=int(counter.get.get("rows", 0)))


def with_dead_letters(sinks: Sequence[Any]) -> tuple[Any, ...]:
    """The sinks, and behind them those that get what they reject."""
    made = [sink for sink in sinks if not isinstance(sink, type)]
    letters = [DeadLetters(sink, letters) for sink in made if (letters := getattr(sink, "dead_letters", None))]
    return (*sinks, *letters)


def nested_dead_letters(sinks: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The sinks of dead letters that have dead letters of their own, each with the sink that it gets rows of."""
    letters = [sink for sink in sinks if isinstance(sink, DeadLetters)]
    return [(one.origin, one.inner) for one in letters if getattr(one.inner, "dead_letters", None)]
