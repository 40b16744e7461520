"""What each sink was given in epochs whose records are folded away. Pure: no I/O, no clock.

A snapshot carries it, so that an audit can still add up a stream of a million epochs::

    {"from": 0, "sinks": {"files": [{"target": "/archive", "from": 0, "through": 40, "epochs": 41, "rows": 4100,
                                     "digest": "x64:0123456789abcdef"}]}}

A sink whose target was changed has an entry for each. Snapshots of older versions have none of this: what they fold is
unknown, and counting begins after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epochal.txn.model import Json
from epochal.txn.records import Prepared
from epochal.txn.tallies import Tally
from epochal.txn.view import View, target_of


@dataclass(frozen=True, slots=True)
class Run:
    """Epochs that one sink got in one place, one after the other."""

    target: str  # empty if the start that knew it is gone from the journal
    first: int
    last: int
    epochs: int
    tally: Tally

    def __add__(self, other: Run) -> Run:
        return Run(self.target, self.first, other.last, self.epochs + other.epochs, self.tally + other.tally)


@dataclass(frozen=True, slots=True)
class Totals:
    """Every epoch from `since` on, by sink."""

    since: int
    sinks: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        sinks: dict[str, Json] = {name: [_to_json(run) for run in runs] for name, runs in self.sinks.items()}
        return {"from": self.since, "sinks": sinks}


def totals(view: View, *, through: int) -> Totals:
    """What was given up to an epoch: the newest snapshot's totals, and what was decided since."""
    found = at_floor(view)
    sinks = {name: list(runs) for name, runs in found.sinks.items()}
    for epoch in range(max(view.floor + 1, view.base), through + 1):
        winner = view.winner(epoch)
        for name, tally in tallies(winner).items() if winner is not None else ():
            runs = sinks.setdefault(name, [])
            run = Run(target(view, winner, name), epoch, epoch, 1, tally)
            if runs and runs[-1].target == run.target:
                runs[-1] += run
            else:
                runs.append(run)
    return Totals(found.since, {name: tuple(runs) for name, runs in sorted(sinks.items())})


def at_floor(view: View) -> Totals:
    """What the newest snapshot says."""
    told = view.totals_at_floor
    since, sinks = told.get("from"), told.get("sinks")
    if not isinstance(since, int) or not isinstance(sinks, dict):
        return Totals(max(view.base, view.floor + 1))
    return Totals(since, {name: tuple(map(_from_json, runs)) for name, runs in sinks.items() if isinstance(runs, list)})


def tallies(record: Prepared) -> dict[str, Tally]:
    """What each sink has staged of an epoch."""
    found = {}
    for sink, part in record.sinks.items():
        rows, digest = (part.get("rows"), part.get("digest")) if isinstance(part, dict) else (0, None)
        found[sink] = Tally(rows if isinstance(rows, int) else 0, digest if isinstance(digest, str) else None)
    return found


def target(view: View, record: Prepared | None, sink: str) -> str:
    """Where an attempt staged for a sink; empty if its generation's start is gone."""
    started = view.generations.get(record.generation) if record is not None else None
    return target_of(started.sinks.get(sink)) if started is not None else ""


def _to_json(run: Run) -> dict[str, Json]:
    told: dict[str, Json] = {
        "target": run.target,
        "from": run.first,
        "through": run.last,
        "epochs": run.epochs,
        "rows": run.tally.rows,
    }
    return told if run.tally.digest is None else {**told, "digest": run.tally.digest}


def _from_json(value: Json) -> Run:
    assert isinstance(value, dict)
    first, last, epochs, rows = (_number(value[key]) for key in ("from", "through", "epochs", "rows"))
    digest = value.get("digest")
    return Run(str(value["target"]), first, last, epochs, Tally(rows, None if digest is None else str(digest)))


def _number(value: Json) -> int:
    assert isinstance(value, int)
    return value
