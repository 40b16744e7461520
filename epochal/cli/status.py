"""``epochal status``: where a stream and its sinks stand, as a table or as JSON."""

from __future__ import annotations

import json
import time

from epochal.cli.facts import Facts, gather
from epochal.cli.streams import open_stream
from epochal.cli.text import AWAY, REFUSED, counted, facts, lasting, listed, paint, size, table
from epochal.txn.model import Json, OpenRows
from epochal.txn.plan import Sweep
from epochal.txn.records import Prepared
from epochal.txn.recovery import Leftover
from epochal.txn.states import State


def run(checkpoint: str, journal: str | None, *, as_json: bool) -> int:
    """Print it. The exit code says whether a start would be refused, or a store is away."""
    found = gather(open_stream(checkpoint, journal))
    print(json.dumps(to_json(found), indent=2) if as_json else to_text(found))
    if found.refusal:
        return REFUSED
    return AWAY if any(sink.error for sink in found.sinks if sink.current) else 0


def why(left: Leftover, newest: int, committed: int) -> str:
    """The rule that a leftover falls under, in words."""
    epoch = left.attempt.epoch
    match left.state, left.verdict:
        case State.PREPARED, _ if epoch <= committed:
            return f"commits/{epoch} is there: this or another attempt becomes the epoch: epochal recover"
        case State.PREPARED, _:
            return f"in doubt: Spark may still write commits/{epoch}, and this may be the only copy"
        case State.DECIDED, _:
            return "it became the epoch and is not visible yet: epochal recover"
        case State.STAGING, Sweep.SEAL_THEN_REMOVE:
            return f"never prepared, and its driver was superseded by generation {newest}"
        case State.STAGING, _:
            return f"generation {left.attempt.generation} is the newest: its driver may be at work"
        case State.SEALED, Sweep.KEEP:
            return f"sealed, but generation {left.attempt.generation} is the newest"
        case State.SEALED, _:
            return "sealed before it was prepared: it can never become the epoch"
        case State.LOST, _:
            return "another attempt became the epoch"
        case _:
            return "the epoch is visible; this is a remainder"


def leftover_json(left: Leftover, newest: int, committed: int) -> dict[str, Json]:
    """One leftover for machines."""
    return {
        "sink": left.place.sink,
        "target": left.place.target,
        "epoch": left.attempt.epoch,
        "generation": left.attempt.generation,
        "state": left.state.value,
        "rule": left.verdict.value,
        "why": why(left, newest, committed),
    }


def leftover_table(left: list[Leftover], newest: int, committed: int) -> str:
    """Leftovers for people."""
    cells = [
        [
            item.place.sink,
            str(item.attempt.epoch),
            str(item.attempt.generation),
            item.state.value,
            item.verdict.value,
            why(item, newest, committed),
        ]
        for item in left
    ]
    return table(["SINK", "EPOCH", "GENERATION", "STATE", "RULE", "WHY"], cells, right=["EPOCH", "GENERATION"])


def part_json(sink: str, part: OpenRows) -> dict[str, Json]:
    """One open part for machines; times in seconds since 1970."""
    return {
        "sink": sink,
        "bucket": part.group,
        "bytes": part.bytes,
        "rows": part.rows,
        "pieces": part.chunks,
        "first": part.first,
        "last": part.last,
    }


SHOWN = 20


def _rows(record: Prepared) -> dict[str, int]:
    return {sink: staged.rows for sink, staged in record.sinks.items()}


def open_table(parts: list[tuple[str, OpenRows]]) -> str:
    """Open parts for people, the oldest first; of very many, the oldest."""
    now = time.time()
    oldest = sorted(parts, key=lambda item: item[1].first)
    cells = [
        [
            sink,
            part.group or "-",
            size(part.bytes),
            "?" if part.rows is None else f"{part.rows:,}",
            str(part.chunks),
            lasting(now - part.first),
            lasting(now - part.last),
        ]
        for sink, part in oldest[:SHOWN]
    ]
    headers = ["SINK", "BUCKET", "SIZE", "ROWS", "PIECES", "AGE", "IDLE"]
    shown = table(headers, cells, right=headers[2:])
    return shown if len(parts) <= SHOWN else f"{shown}\nand {len(parts) - SHOWN:,} more (--json lists all)"


def to_json(found: Facts) -> dict[str, Json]:
    """The facts for machines; an epoch that is not there is null."""
    latest = found.latest
    return {
        "checkpoint": found.stream.path,
        "query": latest.query,
        "lineage": found.stream.lineage,
        "incarnation": latest.incarnation,
        "commit": latest.commit,
        "base": latest.base,
        "committed": _epoch(found.committed),
        "done": _epoch(found.view.done_through),
        "settled": found.settled,
        "generation": {"number": latest.generation, "at": latest.at, **latest.driver},
        "sinks": [
            {
                "name": sink.place.sink,
                "type": sink.place.kind,
                "target": sink.place.target,
                "current": sink.current,
                "last": sink.last,
                "error": sink.error or None,
            }
            for sink in found.sinks
        ],
        "in_doubt": [
            {"epoch": p.epoch, "generation": p.generation, "at": p.at, "rows": dict(_rows(p))} for p in found.in_doubt
        ],
        "held": [
            {"epoch": held.epoch, "generation": held.generation, "sinks": dict(held.sinks)} for held in found.held
        ],
        "open": [part_json(sink, part) for sink, part in found.open],
        "leftovers": [leftover_json(left, latest.generation, found.committed) for left in found.leftovers],
        "journal": {
            "path": found.stream.journal.path,
            "records": found.records,
            "bytes": found.size,
            "temporary": found.temporary,
            "folded_through": _epoch(found.view.floor),
        },
        "refusal": found.refusal or None,
        "unprovable": [{"epoch": epoch, "why": why} for epoch, why in found.unprovable.items()],
    }


def to_text(found: Facts) -> str:
    """The facts for people."""
    latest = found.latest
    folded = f", folded up to epoch {found.view.floor}" if found.view.floor >= 0 else ""
    strays = f", {counted(found.temporary, 'temporary file')}" if found.temporary else ""
    parts = [
        facts(
            [
                ("checkpoint", found.stream.path),
                ("journal", found.stream.journal.path),
                ("", f"{counted(found.records, 'record')}, {size(found.size)}{folded}{strays}"),
                ("lineage", found.stream.lineage),
                ("generation", f"{latest.generation}, {_driver(found)}"),
                ("commit mode", latest.commit),
                ("first epoch here", str(latest.base)),
                ("Spark committed", _said(found.committed)),
                ("journal done", _said(found.view.done_through)),
            ]
        ),
        _sinks(found),
    ]
    if found.in_doubt:
        cells = [
            [str(p.epoch), str(p.generation), str(max(_rows(p).values(), default=0)), p.at] for p in found.in_doubt
        ]
        shown = table(["EPOCH", "GENERATION", "ROWS", "PREPARED"], cells, right=["EPOCH", "GENERATION", "ROWS"])
        parts.append(_titled("in doubt: prepared, and Spark's commits/N decides", shown))
    if found.held:
        cells = [
            [str(held.epoch), sink, state, "" if held.generation is None else str(held.generation)]
            for held in found.held
            for sink, state in (held.sinks or {"": "no sink has it"}).items()
        ]
        shown = table(["EPOCH", "SINK", "STATE", "GENERATION"], cells, right=["EPOCH", "GENERATION"])
        parts.append(_titled("held: decided, and not yet in every sink", shown))
    if found.open:
        parts.append(_titled("open: rows that are committed and appear when their part rolls", open_table(found.open)))
    if found.leftovers:
        shown = leftover_table(found.leftovers, latest.generation, found.committed)
        parts.append(_titled("leftovers: staged data in the sinks", shown))
    for reason in dict.fromkeys(found.unprovable.values()):
        epochs = [epoch for epoch, other in found.unprovable.items() if other == reason]
        parts.append(
            f"epoch {listed(epochs)}: {reason}. If the checkpoint is restored from an older copy, nothing proves that "
            "the same rows come back"
        )
    parts.append(_conclusion(found))
    return "\n\n".join(parts)


def _sinks(found: Facts) -> str:
    cells = [
        [
            sink.place.sink + ("" if sink.current else " (former)"),
            sink.place.kind,
            "?" if sink.error else _said(-1 if sink.last is None else sink.last),
            sink.place.target,
            sink.error,
        ]
        for sink in found.sinks
    ]
    headers = ["SINK", "TYPE", "LAST EPOCH", "TARGET", "ERROR"]
    if not any(sink.error for sink in found.sinks):
        headers, cells = headers[:-1], [row[:-1] for row in cells]
    return table(headers, cells, right=["LAST EPOCH"])


def _conclusion(found: Facts) -> str:
    if found.refusal:
        return paint(f"a start would be refused: {found.refusal}", "red")
    if found.held:
        epochs = [held.epoch for held in found.held]
        return paint(
            f"{counted(len(epochs), 'epoch')} ({listed(epochs)}) decided and not done: the running query will finish "
            f"{'it' if len(epochs) == 1 else 'them'}, or `epochal recover {found.stream.path}`",
            "yellow",
        )
    doubt = sorted({p.epoch for p in found.in_doubt})
    if doubt:
        return f"settled; epoch {listed(doubt)} in doubt until the query goes on"
    return paint("settled", "green")


def _driver(found: Facts) -> str:
    driver = found.latest.driver
    what = "fenced by a command" if driver.get("fence") else "started"
    return f"{what} {found.latest.at} by process {driver.get('pid')} on {driver.get('host')}"


def _titled(title: str, body: str) -> str:
    return f"{paint(title, 'bold')}\n{body}"


def _epoch(number: int) -> int | None:
    return number if number >= 0 else None


def _said(number: int) -> str:
    return str(number) if number >= 0 else "none"
