"""What each sink was given in epochs whose records are folded away. Pure: no I/O, no clock.

A snapshot carries it, so that an audit can still add up a stream of a million epochs::

    {"from": 0, "sinks": {"files": [{"target": "/archive", "from": 0, "through": 40, "epochs": 41, "rows": 4100,
                                     "digest": "x64:0123456789abcdef"}]}}

A sink whose target was changed has an entry for each. Snapshots of older versions have none of this: what they fold is
unknown, and counting begins after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from epochal.txn.model import Json
from epochal.txn.row_digests import RowDigest


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """Epochs that one sink was given in one target, one after the other."""

    target: str  # empty if the start that knew it is gone from the journal
    first: int
    last: int
    epochs: int
    given: RowDigest

    def __add__(self, other: EpochSpan) -> EpochSpan:
        return EpochSpan(self.target, self.first, other.last, self.epochs + other.epochs, self.given + other.given)

    def to_json(self) -> dict[str, Json]:
        value: dict[str, Json] = {
            "target": self.target,
            "from": self.first,
            "through": self.last,
            "epochs": self.epochs,
            "rows": self.given.rows,
        }
        return value if self.given.digest is None else {**value, "digest": self.given.digest}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> EpochSpan:
        given = RowDigest(int(value["rows"]), value.get("digest"))
        return EpochSpan(str(value["target"]), int(value["from"]), int(value["through"]), int(value["epochs"]), given)


@dataclass(frozen=True, slots=True)
class Totals:
    """Every epoch from `since` on, by sink."""

    since: int
    sinks: Mapping[str, tuple[EpochSpan, ...]] = field(default_factory=dict)

    def plus(self, spans: Iterable[tuple[str, EpochSpan]]) -> Totals:
        """With epochs that came after them, in order."""
        sinks = {name: list(known) for name, known in self.sinks.items()}
        for name, span in spans:
            known = sinks.setdefault(name, [])
            if known and known[-1].target == span.target:
                known[-1] += span
            else:
                known.append(span)
        return Totals(self.since, {name: tuple(known) for name, known in sorted(sinks.items())})

    def to_json(self) -> dict[str, Json]:
        sinks: dict[str, Json] = {name: [span.to_json() for span in spans] for name, spans in self.sinks.items()}
        return {"from": self.since, "sinks": sinks}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Totals:
        sinks = {str(name): tuple(map(EpochSpan.from_json, spans)) for name, spans in value["sinks"].items()}
        return Totals(int(value["from"]), sinks)
