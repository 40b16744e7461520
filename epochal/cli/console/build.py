"""The snapshot of a stream, from its status and its live file. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from epochal.cli.console import advice
from epochal.cli.console.model import (
    Driver,
    EpochLine,
    Headline,
    Held,
    InDoubt,
    JournalLine,
    LeftoverLine,
    Level,
    OpenPart,
    Phase,
    SinkLine,
    Snapshot,
)
from epochal.cli.console.timeline import Times, epochs_of, is_under_way, lag_of, rows_per_second, seconds
from epochal.cli.status import why
from epochal.cli.stream_status import HeldEpoch, SinkStatus, StreamStatus
from epochal.cli.text import counted, listed
from epochal.txn.live import Live
from epochal.txn.model import OpenRows
from epochal.txn.records import Prepared

SHOWN = 200  # open parts and leftovers


def snapshot(status: StreamStatus, times: Times, live: Live | None, *, running: bool | None, now: float) -> Snapshot:
    """What the console shows of a stream. `running`: whether its driver does; None if nothing tells."""
    latest = status.latest
    if live is not None and live.generation != latest.generation:
        live = None  # of a driver that was replaced
    epochs = epochs_of(status, times, live, running=running, now=now)
    driver = _driver(status, live, running)
    return Snapshot(
        checkpoint=status.stream.path,
        at=now,
        headline=_headline(status, epochs, driver),
        lineage=status.stream.lineage,
        commit=latest.commit,
        base=latest.base,
        committed=_epoch(status.committed),
        done=_epoch(status.view.done_through),
        driver=driver,
        sinks=tuple(_sink(sink, status, epochs, live, now) for sink in status.sinks),
        epochs=epochs,
        in_doubt=_in_doubt(status.in_doubt, driver),
        held=tuple(_held(item, status, times, live, running=running, now=now) for item in status.held),
        open=_open(status.open),
        open_count=len(status.open),
        leftovers=tuple(
            LeftoverLine(
                sink=left.place.sink,
                epoch=left.attempt.epoch,
                generation=left.attempt.generation,
                state=left.state.value,
                rule=left.verdict.value,
                why=why(left, latest.generation, status.committed),
            )
            for left in status.leftovers[:SHOWN]
        ),
        leftover_count=len(status.leftovers),
        journal=JournalLine(
            path=status.stream.journal.path,
            records=status.records,
            bytes=status.size,
            folded_through=_epoch(status.view.floor),
        ),
        refusal=advice.refusal(status.refusal, status.stream.path) if status.refusal else None,
        live=live is not None,
    )


def _driver(status: StreamStatus, live: Live | None, running: bool | None) -> Driver:
    latest = status.latest
    pid = latest.driver.get("pid")
    fence = bool(latest.driver.get("fence"))
    return Driver(
        generation=latest.generation,
        host=str(latest.driver.get("host", "")),
        pid=pid if isinstance(pid, int) else None,
        version=str(latest.driver.get("epochal", "")),
        started=seconds(latest.at),
        running=False if fence else running,
        seen=live.at if live is not None else None,
        doing=live.state.value if live is not None else "",
        fence=fence,
    )


def _headline(status: StreamStatus, epochs: Iterable[EpochLine], driver: Driver) -> Headline:
    if status.refusal:
        return Headline(level=Level.ERROR, text=f"a start would be refused: {status.refusal}")
    held = [line.epoch for line in epochs if line.phase is Phase.HELD]
    if held:
        return Headline(level=Level.WARNING, text=f"held: {counted(len(held), 'epoch')} ({listed(held)}) not visible")
    if driver.running:
        return Headline(level=Level.OK, text=f"running, {driver.doing}")
    doubt = sorted({record.epoch for record in status.in_doubt})
    if doubt:
        level = Level.INFO if driver.running is None else Level.WARNING
        return Headline(level=level, text=f"settled; epoch {listed(doubt)} in doubt until the query runs again")
    return Headline(level=Level.OK, text="settled")


def _sink(
    sink: SinkStatus, status: StreamStatus, epochs: tuple[EpochLine, ...], live: Live | None, now: float
) -> SinkLine:
    name = sink.place.sink
    holds = live.held if live is not None and live.held is not None and live.held.sink == name else None
    behind = [e for e in status.held if sink.current and e.sinks.get(name, "visible") != "visible"]
    return SinkLine(
        name=name,
        kind=sink.place.kind,
        target=sink.place.target,
        current=sink.current,
        last=sink.last,
        behind=len(behind),
        lag=lag_of(epochs, name, now) if sink.current else None,
        rows_per_second=rows_per_second(epochs, name, now) if sink.current else None,
        held=holds.reason if holds is not None else sink.error if behind else "",
        since=holds.since if holds is not None else None,
        error=sink.error,
    )


def _in_doubt(attempts: Iterable[Prepared], driver: Driver) -> tuple[InDoubt, ...]:
    by_epoch: dict[int, list[Prepared]] = {}
    for record in attempts:
        by_epoch.setdefault(record.epoch, []).append(record)
    return tuple(
        InDoubt(
            epoch=epoch,
            attempts=tuple((record.generation, seconds(record.at)) for record in records),
            rows={sink: staged.rows for sink, staged in records[-1].sinks.items()},
            advice=advice.in_doubt(epoch, [record.generation for record in records], running=driver.running),
        )
        for epoch, records in sorted(by_epoch.items())
    )


def _held(
    item: HeldEpoch, status: StreamStatus, times: Times, live: Live | None, *, running: bool | None, now: float
) -> Held:
    waiting = [sink for sink, state in item.sinks.items() if state != "visible"]
    decided = times.of(item.epoch).decided
    cause, since = "", decided
    if live is not None and live.held is not None and live.held.epoch in (None, item.epoch):
        cause, since = f"{live.held.sink}: {live.held.reason}", live.held.since
    else:
        errors = {sink.place.sink: sink.error for sink in status.sinks if sink.error and sink.place.sink in waiting}
        cause = "; ".join(f"{sink}: {error}" for sink, error in errors.items())
    return Held(
        epoch=item.epoch,
        generation=item.generation,
        sinks=dict(item.sinks),
        cause=cause,
        since=since,
        advice=advice.under_way(item.epoch)
        if is_under_way(decided, live, running=running, now=now)
        else advice.held(item.epoch, waiting, status.stream.path, cause=cause, running=running),
    )


def _open(parts: list[tuple[str, OpenRows]]) -> tuple[OpenPart, ...]:
    oldest = sorted(parts, key=lambda item: item[1].first)
    return tuple(
        OpenPart(
            sink=sink,
            bucket=part.group,
            bytes=part.bytes,
            rows=part.rows,
            pieces=part.chunks,
            first=part.first,
            last=part.last,
        )
        for sink, part in oldest[:SHOWN]
    )


def _epoch(number: int) -> int | None:
    return number if number >= 0 else None
