"""Rows that a sink cannot hold go to another one, in the same epoch: output + dead letters = input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from epochal.txn.errors import BadRows
from epochal.txn.model import Attempt, Staged
from epochal.txn.participant import ChecksFrames, Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Rejecting(Protocol):
    """A sink that can tell which rows it will not have."""

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that it will not have, with the reason for each."""


class DeadLetters:
    """A participant of its own: the sink that gets what another one rejects.

    All but `stage` is that sink's own. Its methods become attributes here, so that who asks which optional protocols it
    has (`KeepsState` and the others) gets the same answer, and what they are given arrives whole.
    """

    def __init__(self, origin: Rejecting, letters: Participant[DataFrame]) -> None:
        self._origin, self._letters = origin, letters
        for name in dir(letters):
            if not name.startswith("_") and not hasattr(type(self), name) and callable(getattr(type(letters), name, 0)):
                setattr(self, name, getattr(letters, name))

    def __repr__(self) -> str:
        return f"{self._letters!r}, the dead letters of {self._origin!r}"

    @property
    def name(self) -> str:
        return self._letters.name

    def check_frame(self, rows: DataFrame) -> Sequence[str]:
        """What is wrong with the columns of rejected rows."""
        if not isinstance(self._letters, ChecksFrames):
            return []
        try:
            rejected = self._origin.rejected(rows)
        except BadRows:
            return []  # the frame does not fit the other sink, which says so itself
        return self._letters.check_frame(rejected)

    def stage(self, attempt: Attempt, rows: DataFrame, **facts: Any) -> Staged:
        """Stage the rows that the other sink rejects, of all that there are."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counter = Observation()
        watched = rows.observe(counter, f.count(f.lit(1)).alias("rows"))
        found = self._letters.stage(attempt, self._origin.rejected(watched), **facts)
        return replace(found, seen=int(counter.get.get("rows", 0)))


def with_dead_letters(sinks: Sequence[Any]) -> tuple[Any, ...]:
    """The sinks, and behind them those that get what they reject."""
    found = [DeadLetters(sink, letters) for sink in sinks if (letters := getattr(sink, "dead_letters", None))]
    return (*sinks, *found)
