"""The snapshot of a stream, from its status and its live file. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator

from epochal.cli import exit_codes
from epochal.cli.console import advice
from epochal.cli.console.model import (
    DriverLine,
    EpochLine,
    Headline,
    HeldLine,
    InDoubt,
    JournalLine,
    LeftoverLine,
    Level,
    OpenPart,
    OperatorLine,
    SinkLine,
    StateLine,
    StreamSnapshot,
)
from epochal.cli.console.timeline import Times, epochs_of, is_running, is_under_way, lag_of, rows_per_second, seconds
from epochal.cli.status import why
from epochal.cli.stream_status import HeldEpoch, SinkStatus, StreamStatus
from epochal.cli.verdict import Standing, Verdict
from epochal.txn.live import LiveHeld
from epochal.txn.model import OpenRows
from epochal.txn.records import Prepared

SHOWN = 200  # open parts and leftovers
LEVELS = {
    exit_codes.WELL: Level.OK,
    exit_codes.UNREACHABLE: Level.WARNING,
    exit_codes.UNSETTLED: Level.WARNING,
}


def snapshot(status: StreamStatus, times: Times) -> StreamSnapshot:
    """What the console shows of a stream; `times` are those of the journal's records."""
    latest, now = status.latest, status.now
    epochs = epochs_of(status, times)
    return StreamSnapshot(
        checkpoint=status.stream.path,
        at=now,
        headline=_headline(status.verdict),
        lineage=status.stream.lineage,
        commit=latest.commit,
        base=latest.base,
        committed=_epoch(status.committed),
        done=_epoch(status.view.done_through),
        driver=_driver(status),
        sinks=tuple(_sink(sink, status, epochs) for sink in status.sinks),
        epochs=epochs,
        in_doubt=_in_doubt(status),
        held=(*(_held(item, status, times.of(item.epoch).decided) for item in status.held), *_not_staged(status)),
        unpublished=status.unpublished,
        uncounted=status.uncounted,
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
        spark_state=_spark_state(status),
        refusal=advice.refusal(status.refusal, status.stream.command("status")) if status.refusal else None,
        notes=status.notes,
        live=status.driver.live is not None,
    )


def _spark_state(status: StreamStatus) -> StateLine | None:
    found = status.spark_state
    if found is None:
        return None
    operators = tuple(
        OperatorLine(
            operator=one.metadata.operator,
            name=one.metadata.name,
            provider="" if one.provider is None else one.provider.value,
            partitions=len(one.partitions),
            rows=None if one.rows is None else one.rows.count,
            rows_exact=one.rows is not None and one.rows.exact,
            bytes=one.bytes,
            extent=one.extent,
            replay_rows=None if one.replay_rows is None else one.replay_rows.count,
            replay_bytes=one.replay_bytes,
            skew=None if one.skew is None else round(one.skew, 3),
            missing=len(one.missing),
        )
        for one in found.state.operators
    )
    return StateLine(
        operators=operators, recovery=round(found.recovery.total, 3), measured=found.rates.measured is not None
    )


def _headline(verdict: Verdict) -> Headline:
    level = LEVELS.get(verdict.code, Level.ERROR)
    if verdict.standing is Standing.UNKNOWN and level is Level.OK:
        level = Level.INFO
    return Headline(level=level, standing=verdict.standing.value, text=verdict.text, command=verdict.command)


def _driver(status: StreamStatus) -> DriverLine:
    latest, driver = status.latest, status.driver
    return DriverLine(
        generation=latest.generation,
        host=driver.process.host or "",
        pid=driver.process.pid,
        version=latest.driver.version,
        started=seconds(latest.at),
        running=is_running(status),
        liveness=driver.liveness.value,
        seen=driver.live.at if driver.live is not None else None,
        doing=driver.live.state.value if driver.live is not None else "",
    )


def _sink(sink: SinkStatus, status: StreamStatus, epochs: tuple[EpochLine, ...]) -> SinkLine:
    name = sink.place.sink
    holds = _hold(status)
    own_hold = holds if holds is not None and holds.sink == name and sink.current else None
    behind = [e for e in status.held if sink.current and e.sinks.get(name, "visible") != "visible"]
    return SinkLine(
        name=name,
        kind=sink.place.kind,
        target=sink.place.target,
        current=sink.current,
        last=sink.last,
        behind=len(behind),
        lag=lag_of(epochs, name, status.now) if sink.current else None,
        rows_per_second=rows_per_second(epochs, name, status.now) if sink.current else None,
        held=own_hold.reason if own_hold is not None else sink.error if behind else "",
        since=own_hold.since if own_hold is not None else None,
        error=sink.error,
        available=sink.available,
    )


def _hold(status: StreamStatus) -> LiveHeld | None:
    """Why the driver is held, if it runs."""
    live = status.driver.live
    return live.held if live is not None and is_running(status) else None


def _in_doubt(status: StreamStatus) -> tuple[InDoubt, ...]:
    by_epoch: dict[int, list[Prepared]] = {}
    for record in status.in_doubt:
        by_epoch.setdefault(record.epoch, []).append(record)
    return tuple(
        InDoubt(
            epoch=epoch,
            attempts=tuple((record.generation, seconds(record.at)) for record in records),
            rows={sink: staged.rows for sink, staged in records[-1].sinks.items()},
            advice=advice.in_doubt(epoch, [record.generation for record in records], running=is_running(status)),
        )
        for epoch, records in sorted(by_epoch.items())
    )


def _held(item: HeldEpoch, status: StreamStatus, decided: float | None) -> HeldLine:
    waiting = [sink for sink, state in item.sinks.items() if state != "visible"]
    holds = _hold(status)
    since: float | None
    if holds is not None and holds.epoch in (None, item.epoch):
        cause, since = f"{holds.sink}: {holds.reason}", holds.since
    else:
        errors = {sink.place.sink: sink.error for sink in status.sinks if sink.error and sink.place.sink in waiting}
        cause, since = "; ".join(f"{sink}: {error}" for sink, error in errors.items()), decided
    return HeldLine(
        epoch=item.epoch,
        generation=item.generation,
        sinks=dict(item.sinks),
        cause=cause,
        since=since,
        advice=advice.under_way(item.epoch)
        if is_under_way(status, decided)
        else advice.held(
            item.epoch, waiting, cause=cause, recover=status.stream.command("recover"), running=is_running(status)
        ),
    )


def _not_staged(status: StreamStatus) -> Iterator[HeldLine]:
    holds = _hold(status)
    if holds is not None and holds.epoch is not None and holds.epoch not in {item.epoch for item in status.held}:
        yield HeldLine(
            epoch=holds.epoch,
            generation=status.latest.generation,
            sinks={holds.sink: "waiting"},
            cause=f"{holds.sink}: {holds.reason}",
            since=holds.since,
            advice=advice.not_staged(holds.epoch, holds.sink, holds.reason),
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
