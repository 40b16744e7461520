"""One cut across stores: the last epoch that every sink of a stream shows. Pure: no I/O, no clock.

Epochs are done in order, so the last epoch that is done is the watermark: every sink shows all epochs up to it, and
some may show later ones already. A reader who wants the same rows from each reads each as it was after that epoch. A
store that has a past (`Participant.past`) can give that; others are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from epochal.txn.model import NO_EPOCH, Description
from epochal.txn.past import SinkAt
from epochal.txn.view import View


@dataclass(frozen=True, slots=True)
class Watermark:
    """The last epoch that every sink shows, and the sinks that it was given to."""

    lineage: str
    epoch: int
    sinks: Mapping[str, SinkAt]
    absent: Mapping[str, str] = field(default_factory=dict)  # other sinks of the stream -> why they are not in it


def watermark(view: View) -> Watermark | None:
    """The last epoch of a journal that is done; None before the first."""
    epoch, lineage = view.shown_through, view.lineage
    if lineage is None or epoch == NO_EPOCH or epoch < view.base:
        return None
    winner = view.winner(epoch)
    number = winner.generation if winner is not None and winner.generation in view.generations else view.generation
    described, adopted = view.generations[number].sinks, view.generations[number].adopted
    # An epoch that a sink held already was not given to it again.
    names = [n for n in described if winner is None or n in winner.sinks or adopted.get(n, NO_EPOCH) >= epoch]
    sinks = {
        name: SinkAt(
            name,
            lineage,
            epoch,
            described[name],
            _starts(view, name, described[name].target, through=number),
            tuple(_notes(view, name)),
        )
        for name in names
    }
    return Watermark(lineage, epoch, sinks, dict(_absent(view, sinks)))


def _starts(view: View, sink: str, target: str, *, through: int) -> dict[int, Description]:
    found = (
        (number, record.sinks.get(sink)) for number, record in sorted(view.generations.items()) if number <= through
    )
    return {number: one for number, one in found if one is not None and one.target == target}


def _notes(view: View, sink: str) -> Iterator[str]:
    """What this sink's target lacks of the epochs up to the watermark, as far as the journal knows."""
    through = view.done_through
    latest = view.latest
    totals = view.totals(through=through)
    spans = totals.sinks.get(sink, ())
    if not spans or latest is None:
        return
    here = spans[-1].target
    for span in spans[:-1]:
        if span.target != here:
            yield f"{_epochs(span.first, span.last)} went to {span.target or 'another target'}"
    first = min(span.first for span in spans)
    start = max(totals.since, view.base)
    if first > start:
        yield f"it is part of the stream since epoch {first} only: {_epochs(start, first - 1)} never went there"
    own = totals.repartitioned
    gaps = sum(
        span.last - span.first + 1 - span.epochs - sum(1 for epoch in own if span.first < epoch < span.last)
        for span in spans
        if span.target == here
    )
    adopted = latest.adopted.get(sink, NO_EPOCH)
    if gaps and adopted > spans[0].first:
        yield f"{gaps} epochs were not given to it again: its start was told that it held those up to {adopted}"
    elif gaps:
        yield f"it was left out of the writer in between: {gaps} epochs never went there"
    if view.base:
        yield f"the journal begins with epoch {view.base}; what was written before is there as the target has it"
    if (missing := latest.missing.get(sink)) is not None:
        yield f"epochs up to {missing} may be missing, as its start was told to accept"


def _absent(view: View, sinks: Mapping[str, SinkAt]) -> Iterator[tuple[str, str]]:
    """The sinks of a stream that its watermark was not given to."""
    newest = view.latest.sinks if view.latest is not None else {}
    totals = view.totals(through=view.done_through)
    for name in sorted({*newest, *totals.sinks} - sinks.keys()):
        spans: Sequence[Any] = totals.sinks.get(name, ())
        if name in newest:
            yield name, f"no epoch that it was given is done yet: it joins the stream after epoch {view.done_through}"
        else:
            yield (
                name,
                f"it left the stream after epoch {spans[-1].last} and was not given epoch {view.done_through}",
            )


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
