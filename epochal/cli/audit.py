"""``epochal audit``: is what the sinks hold exactly what was given to them?

Settles nothing and changes nothing. What is in doubt or waits for a store is told, and what is done is audited: also
beside a driver that is at work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from epochal.cli.streams import Stream, open_stream, start_spark
from epochal.cli.text import counted, listed, paint, table
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.txn import plan
from epochal.txn.audit import Difference, Found, Judgement, Scope, Verdict, compare_with_store, expected
from epochal.txn.model import NO_EPOCH, Json
from epochal.txn.recovery import Place, Sinks
from epochal.txn.view import View

DIFFERS = 3
SHOWN = 20
TRIES = 3
COLOURS = {Verdict.EXACT: "green", Verdict.DIFFERS: "red", Verdict.NOT_PROVABLE: "yellow"}
MOVED_ON = "the stream went on while it was audited; stop it, or audit again"
UNSETTLED = "what is decided is not all carried out, and parts that were open are on their way: `epochal recover` first"
NO_AUDIT = "the sink has no audit: its participant does not say what is in its store"


@dataclass(frozen=True, slots=True)
class Audited:
    """One sink in one place, and what was found there."""

    place: Place
    current: bool
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Audit:
    """The whole answer."""

    stream: Stream
    through: int
    in_doubt: list[int]
    held: list[int]
    sinks: list[Audited]

    @property
    def verdict(self) -> Verdict:
        found = {audited.judgement.verdict for audited in self.sinks}
        order = (Verdict.DIFFERS, Verdict.NOT_PROVABLE)
        return next((verdict for verdict in order if verdict in found), Verdict.EXACT)


def run(checkpoint: str, journal: str | None, *, fast: bool, as_json: bool) -> int:
    """Print it; the exit code says whether something differs."""
    told = _tell if not as_json and sys.stderr.isatty() else lambda _: None
    stream = open_stream(checkpoint, journal)
    start_on_demand(lambda path: start_spark(path, master="local[*]"))
    found = audit(stream, fast=fast, told=told)
    print(json.dumps(to_json(found), indent=2) if as_json else to_text(found))
    return DIFFERS if found.verdict is Verdict.DIFFERS else 0


def audit(stream: Stream, *, fast: bool, told: Callable[[str], None]) -> Audit:
    """Ask every place that the stream has ever written to."""
    sinks = stream.sinks()
    judged = []
    for place in sinks.places():
        judgement = _judged(stream, sinks, place, fast=fast, told=told)
        is_current = place in sinks.current().values()
        if is_current or judgement.epochs:
            judged.append(Audited(place, is_current, judgement))
    view, committed = stream.journal.read(), stream.checkpoint.committed()
    return Audit(stream, view.done_through, plan.in_doubt(view, committed), plan.held(view, committed), judged)


def _judged(stream: Stream, sinks: Sinks, place: Place, *, fast: bool, told: Callable[[str], None]) -> Judgement:
    participant = sinks.at(place)
    alone = sum(1 for other in sinks.places() if other.sink == place.sink) == 1
    for left in reversed(range(TRIES)):
        view = stream.journal.read()
        wanted = expected(view, place.sink, place.target, alone=alone)
        if participant.audits is None:
            return compare_with_store(wanted, Found(unproven=(NO_AUDIT,)))
        found = participant.audits.audit(
            Scope(
                lineage=stream.lineage,
                expected=wanted,
                state=view.sink_state(place.sink, through=view.done_through),
                fast=fast,
                progress=lambda what: told(f"{place.sink}: {what}"),
            )
        )
        judgement = compare_with_store(wanted, found)
        if judgement.verdict is Verdict.DIFFERS and _is_moving(stream, view, place):
            return compare_with_store(wanted, Found(unproven=(UNSETTLED,)))
        after = stream.journal.read()
        if judgement.verdict is Verdict.EXACT or (after.done_through, after.rolls) == (view.done_through, view.rolls):
            break
        if not left:  # what seemed to differ may have moved on while it was looked at
            return compare_with_store(wanted, Found(unproven=(MOVED_ON,)))
    return judgement


def _is_moving(stream: Stream, view: View, place: Place) -> bool:
    """Whether parts that are open are just being closed: then their rows are between two places."""
    rolled = any(place.sink in record.sinks for record in view.to_carry_out())
    held = plan.held(view, stream.checkpoint.committed())
    return rolled or (bool(held) and bool(view.sink_state(place.sink, through=view.done_through)))


def to_json(found: Audit) -> dict[str, Json]:
    """The answer for machines."""
    return {
        "checkpoint": found.stream.path,
        "lineage": found.stream.lineage,
        "verdict": found.verdict.value,
        "through": found.through if found.through > NO_EPOCH else None,
        "in_doubt": list(found.in_doubt),
        "held": list(found.held),
        "sinks": [_sink_json(audited) for audited in found.sinks],
    }


def _sink_json(audited: Audited) -> dict[str, Json]:
    judgement = audited.judgement
    there = judgement.found
    return {
        "name": audited.place.sink,
        "type": audited.place.kind,
        "target": audited.place.target,
        "current": audited.current,
        "verdict": judgement.verdict.value,
        "epochs": judgement.epochs,
        "rows": {"expected": judgement.wanted.rows, "found": there.rows if there is not None else None},
        "digest": {
            "compared": judgement.digests,
            "expected": judgement.wanted.digest,
            "found": there.digest if there is not None else None,
        },
        "differences": [{"epoch": d.epoch, "file": d.file, "what": d.what} for d in judgement.differences],
        "not_provable": list(judgement.unproven),
        "notes": list(judgement.notes),
    }


def to_text(found: Audit) -> str:
    """The answer for people."""
    headers = ["SINK", "EPOCHS", "ROWS STAGED", "ROWS FOUND", "DIGEST", "VERDICT"]
    cells = [
        [
            audited.place.sink + ("" if audited.current else f" (former, {audited.place.target})"),
            f"{audited.judgement.epochs:,}",
            f"{audited.judgement.wanted.rows:,}",
            "-" if audited.judgement.found is None else f"{audited.judgement.found.rows:,}",
            audited.judgement.digests,
            audited.judgement.verdict.value,
        ]
        for audited in found.sinks
    ]
    parts = [table(headers, cells, right=headers[1:4])]
    for title, lines in (
        ("differs", [_said(a, d) for a in found.sinks for d in a.judgement.differences]),
        ("not provable", [f"{a.place.sink}: {why}" for a in found.sinks for why in a.judgement.unproven]),
        ("good to know", [f"{a.place.sink}: {note}" for a in found.sinks for note in a.judgement.notes]),
    ):
        if lines:
            parts.append("\n".join([paint(title, "bold"), *_bounded(lines)]))
    parts.append(_conclusion(found))
    return "\n\n".join(parts)


def _said(audited: Audited, difference: Difference) -> str:
    where = [audited.place.sink]
    if difference.file is not None:
        where.append(difference.file)
    elif difference.epoch is not None:
        where.append(f"epoch {difference.epoch}")
    return f"{': '.join(where)}{':' if difference.file is None else ''} {difference.what}"


def _bounded(lines: Sequence[str]) -> list[str]:
    shown = [f"  {line}" for line in lines[:SHOWN]]
    return shown if len(lines) <= SHOWN else [*shown, f"  and {len(lines) - SHOWN:,} more (--json lists all)"]


def _conclusion(found: Audit) -> str:
    upto = f"up to epoch {found.through}" if found.through > NO_EPOCH else "of a stream that has no epoch yet"
    verdict = found.verdict
    said = {
        Verdict.EXACT: f"exact: every row {upto} is there once"
        if all(audited.judgement.wanted.digest is not None for audited in found.sinks)
        else f"exact: as many rows as were staged {upto} are there; which rows they are is proven with digest=True",
        Verdict.DIFFERS: f"differs: what is there {upto} is not what was staged",
        Verdict.NOT_PROVABLE: f"nothing differs {upto}, but not all of it could be proven",
    }[verdict]
    lines = [paint(said, COLOURS[verdict])]
    if found.held:
        lines.append(
            f"{counted(len(found.held), 'epoch')} ({listed(found.held)}) decided and not done, so not audited: "
            f"`epochal recover {found.stream.path}`"
        )
    if found.in_doubt:
        lines.append(f"epoch {listed(found.in_doubt)} in doubt until the query goes on, so not audited")
    return "\n".join(lines)


def _tell(what: str) -> None:
    print(paint(what, "dim", sys.stderr), file=sys.stderr, flush=True)
