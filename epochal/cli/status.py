"""``epochal status``: the status of a stream and its sinks, as a table or as JSON."""

from __future__ import annotations

import json
import time

from epochal.cli import exit_codes, progress
from epochal.cli.state import Restorable, operator_json, operator_line, recovery_json
from epochal.cli.stream_status import StateStatus, StreamStatus, read_status
from epochal.cli.streams import open_stream
from epochal.cli.text import counted, key_values, listed, paint, print_answer, size, table
from epochal.spark_plugins.standby.notices import Notice
from epochal.txn.driver_facts import RETIRED
from epochal.txn.durations import lasting
from epochal.txn.liveness import DriverStatus
from epochal.txn.model import Json, OpenRows
from epochal.txn.plan import Removal
from epochal.txn.records import Prepared
from epochal.txn.recovery import Leftover
from epochal.txn.states import State

COLOURS = {exit_codes.WELL: "green", exit_codes.UNREACHABLE: "yellow", exit_codes.UNSETTLED: "yellow"}


def run(checkpoint: str, journal: str | None, *, as_json: bool) -> int:
    """Print it. The exit code says how the stream stands (`exit_codes`)."""
    with progress.task(f"looking at {checkpoint}"):
        status = read_status(open_stream(checkpoint, journal))
    print_answer(json.dumps(to_json(status), indent=2) if as_json else to_text(status))
    return status.verdict.code


def why(left: Leftover, newest: int, committed: int) -> str:
    """Why a leftover is kept or can be removed."""
    epoch = left.attempt.epoch
    match left.state, left.verdict:
        case State.PREPARED, _ if epoch <= committed:
            return f"commits/{epoch} is written: this or another attempt becomes the epoch. Run epochal recover"
        case State.PREPARED, _:
            return f"in doubt: Spark may still write commits/{epoch}, and this may be the only copy"
        case State.DECIDED, _:
            return "it became the epoch and is not yet visible. Run epochal recover"
        case State.STAGING, Removal.SEAL_THEN_REMOVE:
            return f"never prepared, and its driver was superseded by generation {newest}"
        case State.STAGING, _:
            return f"generation {left.attempt.generation} is the newest: its driver may still run"
        case State.SEALED, Removal.KEEP:
            return f"sealed, but generation {left.attempt.generation} is the newest"
        case State.SEALED, _:
            return "sealed before it was prepared: it can never become the epoch"
        case State.LOST, _:
            return "another attempt became the epoch"
        case _:
            return "the epoch is visible; this copy is no longer needed"


def leftover_json(left: Leftover, newest: int, committed: int) -> dict[str, Json]:
    """One leftover as JSON."""
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
    """Leftovers as a table."""
    cells = [
        [
            item.place.sink,
            str(item.attempt.epoch),
            str(item.attempt.generation),
            "replaced" if item.state is State.LOST else item.state.value,
            item.verdict.value,
            why(item, newest, committed),
        ]
        for item in left
    ]
    return table(["SINK", "EPOCH", "GENERATION", "STATE", "RULE", "WHY"], cells, right=["EPOCH", "GENERATION"])


def part_json(sink: str, part: OpenRows) -> dict[str, Json]:
    """One open part as JSON. Times are seconds since 1970."""
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
    """Open parts as a table, the oldest first, at most `SHOWN` of them."""
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


def driver_json(driver: DriverStatus) -> dict[str, Json]:
    """The newest driver as JSON. Times are seconds since 1970."""
    live = driver.live
    held: Json = None
    refused: Json = None
    if live is not None and live.held is not None:
        held = {
            "sink": live.held.sink,
            "epoch": live.held.epoch,
            "step": live.held.step,
            "reason": live.held.reason,
            "since": live.held.since,
        }
    if live is not None and live.refused is not None:
        refused = {
            "error": live.refused.error,
            "reason": live.refused.reason,
            "at": live.refused.at,
            "epoch": live.refused.epoch,
        }
    return {
        "liveness": driver.liveness.value,
        "host": driver.process.host,
        "pid": driver.process.pid,
        "started": driver.process.started,
        "heartbeat_seconds": None if driver.heartbeat is None else round(driver.heartbeat, 3),
        "state": None if live is None else live.state.value,
        "epoch": None if live is None else live.epoch,
        "sink": None if live is None else live.sink,
        "held": held,
        "refused": refused,
    }


def standby_json(notice: Notice, now: float) -> dict[str, Json]:
    """One standby as JSON. Times are seconds since 1970."""
    return {
        "host": notice.process.host,
        "pid": notice.process.pid,
        "since": notice.since,
        "ready": notice.ready,
        "lease_seconds": notice.lease,
        "lease": notice.kept,
        "heartbeat_seconds": round(max(0.0, now - notice.at), 3),
    }


def standby_lines(status: StreamStatus) -> list[tuple[str, str]]:
    """The same as text."""
    lines = []
    for notice in status.standbys:
        doing = "waits" if notice.ready else "warms up"
        heard = lasting(max(0.0, status.now - notice.at))
        lines.append(("standby", f"{notice.process.name}: {doing}, last heard of {heard} ago"))
    return lines


def to_json(status: StreamStatus) -> dict[str, Json]:
    """The status as JSON. An epoch that does not exist is null."""
    latest, verdict = status.latest, status.verdict
    return {
        "state": verdict.standing.value,
        "summary": verdict.text,
        "command": verdict.command,
        "exit_code": verdict.code,
        "checkpoint": status.stream.path,
        "query": latest.query,
        "lineage": status.stream.lineage,
        "incarnation": latest.incarnation,
        "commit": latest.commit,
        "base": latest.base,
        "committed": _epoch(status.committed),
        "done": _epoch(status.view.done_through),
        "settled": status.settled,
        "generation": {
            "number": latest.generation,
            "at": latest.at,
            **{name: value for name, value in latest.driver.to_json().items() if name != RETIRED},
        },
        "driver": driver_json(status.driver),
        "standbys": [standby_json(notice, status.now) for notice in status.standbys],
        "under_way": None if status.under_way is None else {"epoch": status.under_way, "staging": status.staging},
        "sinks": [
            {
                "name": sink.place.sink,
                "type": sink.place.kind,
                "target": sink.place.target,
                "current": sink.current,
                "last": sink.last,
                "error": sink.error or None,
                "available": sink.available,
            }
            for sink in status.sinks
        ],
        "in_doubt": [
            {"epoch": p.epoch, "generation": p.generation, "at": p.at, "rows": dict(_rows(p))} for p in status.in_doubt
        ],
        "held": [
            {"epoch": held.epoch, "generation": held.generation, "sinks": dict(held.sinks)} for held in status.held
        ],
        "unpublished": None if status.unpublished is None else status.unpublished.to_json(),
        "uncounted": list(status.uncounted),
        "open": [part_json(sink, part) for sink, part in status.open],
        "leftovers": [leftover_json(left, latest.generation, status.committed) for left in status.leftovers],
        "journal": {
            "path": status.stream.journal.path,
            "records": status.records,
            "bytes": status.size,
            "temporary": status.temporary,
            "folded_through": _epoch(status.view.floor),
        },
        "sink_state": state_json(status.state),
        "spark_state": spark_state_json(status.spark_state),
        "refusal": status.refusal or None,
        "retired": None if status.retired is None else status.retired.to_json(),
        "unprovable": [{"epoch": epoch, "why": why} for epoch, why in status.unprovable.items()],
        "notes": list(status.notes),
    }


def to_text(status: StreamStatus) -> str:
    """The status as text."""
    latest = status.latest
    folded = f", folded up to epoch {status.view.floor}" if status.view.floor >= 0 else ""
    temporary = f", {counted(status.temporary, 'temporary file')}" if status.temporary else ""
    parts = [
        paint(status.verdict.line, COLOURS.get(status.verdict.code, "red")),
        key_values(
            [
                ("checkpoint", status.stream.path),
                ("journal", status.stream.journal.path),
                ("", f"{counted(status.records, 'record')}, {size(status.size)}{folded}{temporary}"),
                *state_lines(status.state),
                *spark_state_lines(status.spark_state),
                ("lineage", status.stream.lineage),
                ("generation", f"{latest.generation}, {_started(status)}"),
                ("driver", _driver(status.driver)),
                *standby_lines(status),
                ("commit mode", latest.commit),
                ("first epoch here", str(latest.base)),
                ("Spark committed", _epoch_text(status.committed)),
                ("journal done", _epoch_text(status.view.done_through)),
            ]
        ),
        _sinks(status),
    ]
    if status.in_doubt:
        cells = [
            [str(p.epoch), str(p.generation), str(max(_rows(p).values(), default=0)), p.at] for p in status.in_doubt
        ]
        shown = table(["EPOCH", "GENERATION", "ROWS", "PREPARED"], cells, right=["EPOCH", "GENERATION", "ROWS"])
        parts.append(_titled("in doubt: prepared; Spark's commits/N decides", shown))
    if status.held:
        cells = [
            [str(held.epoch), sink, state, "" if held.generation is None else str(held.generation)]
            for held in status.held
            for sink, state in (held.sinks or {"": "in no sink"}).items()
        ]
        shown = table(["EPOCH", "SINK", "STATE", "GENERATION"], cells, right=["EPOCH", "GENERATION"])
        parts.append(_titled("held: decided, but not yet in every sink", shown))
    if status.open:
        parts.append(
            _titled("open: committed rows that nobody can read before their part rolls", open_table(status.open))
        )
    if status.leftovers:
        shown = leftover_table(status.leftovers, latest.generation, status.committed)
        parts.append(_titled("leftovers: staged data in the sinks", shown))
    for reason in dict.fromkeys(status.unprovable.values()):
        epochs = [epoch for epoch, other in status.unprovable.items() if other == reason]
        parts.append(
            f"epoch {listed(epochs)}: {reason}. If the checkpoint is restored from an older copy, epochal cannot prove "
            "that the same rows come back"
        )
    parts.extend(f"note: {note}" for note in status.notes)
    return "\n\n".join(parts)


def state_json(state: StateStatus | None) -> dict[str, Json] | None:
    """What sinks keep over epochs, and how long it would take to restore it."""
    if state is None:
        return None
    extent = state.extent
    return {
        "entries": extent.live,
        "segments": extent.segments,
        "bytes": extent.bytes,
        "extent": extent.epochs,
        "replay": extent.replay,
        "predicted_seconds": round(state.predicted, 6),
        "restored_seconds": None if state.restored is None else round(state.restored, 6),
    }


def state_lines(state: StateStatus | None) -> list[tuple[str, str]]:
    """The same as text."""
    if state is None or not state.extent.live:
        return []
    extent = state.extent
    kept = "in records" if not extent.segments else f"in {counted(extent.segments, 'segment')} of {size(extent.bytes)}"
    taken = "" if state.restored is None else f"; restored just now in {state.restored * 1000:,.0f} ms"
    return [
        ("sinks' state", f"{extent.live:,} {'entry' if extent.live == 1 else 'entries'} {kept}"),
        ("", f"extent {counted(extent.epochs, 'epoch')}, replay {extent.replay:,}"),
        ("", f"predicted recovery {state.predicted * 1000:,.0f} ms{taken}"),
    ]


def spark_state_json(found: Restorable | None) -> dict[str, Json] | None:
    """What Spark's operators keep, and how long a recovery would take."""
    if found is None:
        return None
    operators = [operator_json(operator, partitions=False) for operator in found.state.operators]
    return {"version": found.state.version, "operators": [*operators], "recovery": recovery_json(found)}


def spark_state_lines(found: Restorable | None) -> list[tuple[str, str]]:
    """The same as text: a line for each operator."""
    if found is None:
        return []
    lines = [operator_line(operator) for operator in found.state.operators]
    measured = "" if found.rates.measured is not None else ", by guesses"
    lines.append(f"predicted recovery {found.recovery.total:.1f} s{measured} (epochal state)")
    return [("Spark's state" if number == 0 else "", line) for number, line in enumerate(lines)]


def _sinks(status: StreamStatus) -> str:
    cells = [
        [
            sink.place.sink + ("" if sink.current else " (former)"),
            sink.place.kind,
            "?" if sink.error else _epoch_text(-1 if sink.last is None else sink.last),
            sink.place.target,
            sink.error,
        ]
        for sink in status.sinks
    ]
    headers = ["SINK", "TYPE", "LAST EPOCH", "TARGET", "ERROR"]
    if not any(sink.error for sink in status.sinks):
        headers, cells = headers[:-1], [row[:-1] for row in cells]
    return table(headers, cells, right=["LAST EPOCH"])


def _driver(driver: DriverStatus) -> str:
    live = driver.live
    beat = f", {driver.last_heard}" if driver.last_heard else ""
    doing = "" if live is None or live.state.value == driver.liveness.value else f", {live.state.value}"
    return f"{driver.name}: {driver.liveness.value}{doing}{beat}"


def _started(status: StreamStatus) -> str:
    driver = status.latest.driver
    what = "fenced by a command" if driver.by_command else "started"
    return f"{what} {status.latest.at} by process {driver.process.pid} on {driver.process.host}"


def _titled(title: str, body: str) -> str:
    return f"{paint(title, 'bold')}\n{body}"


def _epoch(number: int) -> int | None:
    return number if number >= 0 else None


def _epoch_text(number: int) -> str:
    return str(number) if number >= 0 else "none"
