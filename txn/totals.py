"""Row totals of the epochs whose records are folded away, by sink. Pure: no I/O, no clock.

A snapshot holds them, so that an audit can still add up a stream of a million epochs::

    {"from": 0, "sinks": {"files": [{"target": "/archive", "from": 0, "through": 40, "epochs": 41, "rows": 4100,
                                     "digest": "x64:0123456789abcdef"}]}}

A sink whose target was changed has an entry for each target. Snapshots of older versions have no totals: what they
folded is unknown, and counting begins after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from epochal.txn.model import Json
from epochal.txn.row_digests import RowDigest


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """Successive epochs that were written to one target of one sink."""

    target: str  # empty if the start that described it was removed from the journal
    first: int
    last: int
    epochs: int
    row_digest: RowDigest

    def __add__(self, other: EpochSpan) -> EpochSpan:
        return EpochSpan(
            self.target, self.first, other.last, self.epochs + other.epochs, self.row_digest + other.row_digest
        )

    def to_json(self) -> dict[str, Json]:
        value: dict[str, Json] = {
            "target": self.target,
            "from": self.first,
            "through": self.last,
            "epochs": self.epochs,
            "rows": self.row_digest.rows,
        }
        return value if self.row_digest.digest is None else {**value, "digest": self.row_digest.digest}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> EpochSpan:
        given = RowDigest(int(value["rows"]), value.get("digest"))
        return EpochSpan(str(value["target"]), int(value["from"]), int(value["through"]), int(value["epochs"]), given)


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of every epoch from `since` on, by sink."""

    since: int
    sinks: Mapping[str, tuple[EpochSpan, ...]] = field(default_factory=dict)
    repartitioned: tuple[int, ...] = ()  # epochs that Spark took for itself: no sink was to get them

    def plus(self, spans: Iterable[tuple[str, EpochSpan]], repartitioned: Iterable[int] = ()) -> Totals:
        """These totals with later epochs added, in order."""
        sinks = {name: list(earlier) for name, earlier in self.sinks.items()}
        for name, span in spans:
            earlier = sinks.setdefault(name, [])
            if earlier and earlier[-1].target == span.target:
                earlier[-1] += span
            else:
                earlier.append(span)
        found = {name: tuple(merged) for name, merged in sorted(sinks.items())}
        return Totals(self.since, found, (*self.repartitioned, *repartitioned))

    def to_json(self) -> dict[str, Json]:
        sinks: dict[str, Json] = {name: [span.to_json() for span in spans] for name, spans in self.sinks.items()}
        value: dict[str, Json] = {"from": self.since, "sinks": sinks}
        return {**value, "repartitioned": list(self.repartitioned)} if self.repartitioned else value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Totals:
        sinks = {str(name): tuple(map(EpochSpan.from_json, spans)) for name, spans in value["sinks"].items()}
        return Totals(int(value["from"]), sinks, tuple(map(int, value.get("repartitioned", ()))))
