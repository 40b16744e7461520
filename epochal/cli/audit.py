"""``epochal audit``: checks that the sinks hold exactly the rows that were staged.

Settles nothing and changes nothing, and may run beside a driver. Epochs that are done are audited; those that are in
doubt or wait for a store are only listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from epochal.cli import progress as show
from epochal.cli.exit_codes import DIFFERS, UNREACHABLE
from epochal.cli.streams import Stream, open_stream, start_spark
from epochal.cli.text import counted, listed, paint, print_answer, table
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.txn import plan
from epochal.txn.audit import AuditResult, AuditVerdict, Difference, Expected, Scope, StoreReport, expected_rows
from epochal.txn.audit_comparison import compare_with_store
from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import NO_EPOCH, Json
from epochal.txn.participant import Auditable
from epochal.txn.recovery import SinkPlace, Sinks
from epochal.txn.view import View

Progress = Callable[[str], None]

SHOWN = 20
TRIES = 3
COLOURS = {
    AuditVerdict.EXACT: "green",
    AuditVerdict.CONSISTENT: "green",
    AuditVerdict.DIFFERS: "red",
    AuditVerdict.NOT_PROVABLE: "yellow",
}
MOVED_ON = "the stream wrote more while it was audited; stop it, or audit again"
UNSETTLED = "decided epochs are not all done, so open parts are being moved: run `epochal recover` first"
NO_AUDIT = "the sink has no audit: its participant does not report what its store holds"


@dataclass(frozen=True, slots=True)
class Audited:
    """The result for one sink in one place."""

    place: SinkPlace
    current: bool
    judgement: AuditResult
    error: str = ""  # why the store could not be read


@dataclass(frozen=True, slots=True)
class Audit:
    """The result for the whole stream."""

    stream: Stream
    through: int
    in_doubt: list[int]
    held: list[int]
    sinks: list[Audited]

    @property
    def verdict(self) -> AuditVerdict:
        found = {audited.judgement.verdict for audited in self.sinks}
        order = (AuditVerdict.DIFFERS, AuditVerdict.NOT_PROVABLE, AuditVerdict.CONSISTENT)
        return next((verdict for verdict in order if verdict in found), AuditVerdict.EXACT)


def run(checkpoint: str, journal: str | None, *, fast: bool, as_json: bool) -> int:
    """Print the result. The exit code shows whether something differs."""
    stream = open_stream(checkpoint, journal)
    start_on_demand(lambda path: start_spark(path, master="local[*]"))
    with show.task(f"auditing {stream.path}") as say:
        result = audit(stream, fast=fast, progress=say)
    print_answer(json.dumps(to_json(result), indent=2) if as_json else to_text(result))
    if result.verdict is AuditVerdict.DIFFERS:
        return DIFFERS
    return UNREACHABLE if any(audited.error for audited in result.sinks) else 0


def audit(stream: Stream, *, fast: bool, progress: Progress) -> Audit:
    """Audit every place that the stream has ever written to."""
    sinks = stream.sinks()
    audited = []
    for place in sinks.places():
        is_current = place in sinks.current().values()
        error = ""
        try:
            judgement = _audit_place(stream, sinks, place, fast=fast, progress=progress)
        except JournalCorrupt:
            raise  # it concerns all sinks
        except Exception as fault:  # noqa: BLE001  # any error of a store's driver: go on with the other sinks
            error = str(fault) or type(fault).__name__
            judgement = compare_with_store(
                _expected(stream.journal.read(), sinks, place),
                StoreReport(unproven=(f"it could not be read: {error}",)),
            )
        if is_current or judgement.epochs:
            audited.append(Audited(place, is_current, judgement, error))
    view, committed = stream.journal.read(), stream.checkpoint.committed()
    return Audit(
        stream,
        view.done_through,
        plan.epochs_in_doubt(view, committed),
        plan.decided_not_done(view, committed),
        audited,
    )


def _audit_place(stream: Stream, sinks: Sinks, place: SinkPlace, *, fast: bool, progress: Progress) -> AuditResult:
    participant = sinks.at(place)
    audits: Auditable | None = getattr(participant, "audits", None)  # older participants do not have the attribute
    for left in reversed(range(TRIES)):
        view = stream.journal.read()
        wanted = _expected(view, sinks, place)
        if audits is None:
            return compare_with_store(wanted, StoreReport(unproven=(NO_AUDIT,)))
        found = audits.audit(
            Scope(
                lineage=stream.lineage,
                expected=wanted,
                state=view.sink_state(place.sink, through=view.done_through),
                fast=fast,
                progress=lambda what: progress(f"{place.sink}: {what}"),
            )
        )
        judgement = compare_with_store(wanted, found)
        if judgement.verdict is AuditVerdict.DIFFERS and _is_moving(stream, view, place):
            return compare_with_store(wanted, StoreReport(unproven=(UNSETTLED,)))
        after = stream.journal.read()
        if judgement.verdict is AuditVerdict.EXACT or (after.done_through, after.rolls) == (
            view.done_through,
            view.rolls,
        ):
            break
        if not left:  # rows may have moved while the store was read
            return compare_with_store(wanted, StoreReport(unproven=(MOVED_ON,)))
    return judgement


def _expected(view: View, sinks: Sinks, place: SinkPlace) -> Expected:
    alone = sum(1 for other in sinks.places() if other.sink == place.sink) == 1
    return expected_rows(view, place.sink, place.target, alone=alone)


def _is_moving(stream: Stream, view: View, place: SinkPlace) -> bool:
    """Whether open parts are being closed now: then their rows are between two places."""
    rolled = any(place.sink in record.sinks for record in view.pending_rolls())
    held = plan.decided_not_done(view, stream.checkpoint.committed())
    return rolled or (bool(held) and bool(view.sink_state(place.sink, through=view.done_through)))


def to_json(result: Audit) -> dict[str, Json]:
    """The result as JSON."""
    return {
        "checkpoint": result.stream.path,
        "lineage": result.stream.lineage,
        "verdict": result.verdict.value,
        "through": result.through if result.through > NO_EPOCH else None,
        "in_doubt": list(result.in_doubt),
        "held": list(result.held),
        "sinks": [_sink_json(audited) for audited in result.sinks],
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
        "rows": {"expected": judgement.expected.rows, "found": there.rows if there is not None else None},
        "digest": {
            "compared": judgement.digests,
            "expected": judgement.expected.digest,
            "found": there.digest if there is not None else None,
        },
        "differences": [{"epoch": d.epoch, "file": d.file, "what": d.what} for d in judgement.differences],
        "not_provable": list(judgement.unproven),
        "notes": list(judgement.notes),
        "error": audited.error or None,
    }


def to_text(result: Audit) -> str:
    """The result as text."""
    headers = ["SINK", "EPOCHS", "ROWS STAGED", "ROWS FOUND", "DIGEST", "VERDICT"]
    cells = [
        [
            audited.place.sink + ("" if audited.current else f" (former, {audited.place.target})"),
            f"{audited.judgement.epochs:,}",
            f"{audited.judgement.expected.rows:,}",
            "-" if audited.judgement.found is None else f"{audited.judgement.found.rows:,}",
            audited.judgement.digests,
            audited.judgement.verdict.value,
        ]
        for audited in result.sinks
    ]
    parts = [table(headers, cells, right=headers[1:4])]
    for title, lines in (
        ("differs", [_describe(a, d) for a in result.sinks for d in a.judgement.differences]),
        ("not provable", [f"{a.place.sink}: {why}" for a in result.sinks for why in a.judgement.unproven]),
        ("notes", [f"{a.place.sink}: {note}" for a in result.sinks for note in a.judgement.notes]),
    ):
        if lines:
            parts.append("\n".join([paint(title, "bold"), *_bounded(lines)]))
    parts.append(_conclusion(result))
    return "\n\n".join(parts)


def _describe(audited: Audited, difference: Difference) -> str:
    where = [audited.place.sink]
    if difference.file is not None:
        where.append(difference.file)
    elif difference.epoch is not None:
        where.append(f"epoch {difference.epoch}")
    return f"{': '.join(where)}{':' if difference.file is None else ''} {difference.what}"


def _bounded(lines: Sequence[str]) -> list[str]:
    shown = [f"  {line}" for line in lines[:SHOWN]]
    return shown if len(lines) <= SHOWN else [*shown, f"  and {len(lines) - SHOWN:,} more (--json lists all)"]


def _conclusion(result: Audit) -> str:
    upto = f"up to epoch {result.through}" if result.through > NO_EPOCH else "of a stream that has no epoch yet"
    verdict = result.verdict
    conclusion = {
        AuditVerdict.EXACT: f"exact: every row {upto} is there once"
        if all(audited.judgement.expected.digest is not None for audited in result.sinks)
        else f"exact: as many rows as were staged {upto} are there; digest=True on the sink also proves which rows",
        AuditVerdict.CONSISTENT: f"consistent: every epoch {upto} is there once, by names, lengths and logs; rows were "
        "not read. Without --fast they are counted and compared",
        AuditVerdict.DIFFERS: f"differs: the rows {upto} are not those that were staged",
        AuditVerdict.NOT_PROVABLE: f"nothing differs {upto}, but not everything could be proven",
    }[verdict]
    lines = [paint(conclusion, COLOURS[verdict])]
    if result.held:
        lines.append(
            f"{counted(len(result.held), 'epoch')} ({listed(result.held)}) decided but not done, so not audited. Run "
            f"`epochal recover {result.stream.path}`"
        )
    if result.in_doubt:
        lines.append(f"epoch {listed(result.in_doubt)} in doubt until the query runs again, so not audited")
    return "\n".join(lines)
