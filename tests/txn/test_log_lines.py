"""The log as a person reads it, and its facts as a machine does."""

from __future__ import annotations

import json
import logging

import pytest

from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochSkipped,
    EpochStaged,
    Event,
    PartsOpen,
    PartsRolled,
    RecoveryMeasured,
    StandbyEnded,
    StandbyWaits,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
    TakeoverBegun,
    TakeoverEnded,
)
from epochal.txn.log_lines import LogLines, facts_of, level_of, text_of
from epochal.txn.model import Outcome

WHO = {"lineage": "7c8d2a4e-aaaa", "stream": "orders", "at": 1_800_000_000.0}
OF_EPOCH = {**WHO, "epoch": 42, "generation": 3}
EARLIER = {"earlier": 2, "host": "spark-7", "pid": 4711}


def committed(outcome: Outcome = Outcome.COMMITTED, lag: float | None = 0.18, **more: object) -> EpochCommitted:
    facts = {"sink": "lake", "rows": 50_000, "bytes": 3_100_000, "seconds": 0.1, **more}
    return EpochCommitted(**OF_EPOCH, outcome=outcome, lag=lag, **facts)  # type: ignore[arg-type]


def held(**more: object) -> StreamHeld:
    facts = {"epoch": 42, "sink": "lake", "step": "commit", "reason": "ConnectionError: no route", "tries": 1, **more}
    return StreamHeld(**WHO, seconds=0.0, **facts) if "seconds" not in more else StreamHeld(**WHO, **facts)  # type: ignore[arg-type]


MISSED = (
    "stream orders would miss its recovery objective of 10.0 s: a crash now would take 14.2 s, extent 61, 31.0 MB; "
    "`epochal plan-recovery` proposes settings"
)
LINES: list[tuple[Event, str, str]] = [
    (
        StreamStarted(**WHO, generation=3, sinks=("lake", "archive"), in_doubt=(42,)),  # type: ignore[arg-type]
        "INFO",
        "stream orders started: generation 3, sinks lake, archive; epoch 42 in doubt",
    ),
    (
        TakeoverBegun(**WHO, generation=3, since="2026-11-18T12:00:00Z", timeout=60.0, **EARLIER),  # type: ignore[arg-type]
        "WARNING",
        (
            "stream orders waits up to 60 s for another driver to end: generation 2, pid 4711 on spark-7, started "
            "2026-11-18T12:00:00Z"
        ),
    ),
    (
        TakeoverEnded(**WHO, generation=3, how="ended", seconds=4.1, **EARLIER),  # type: ignore[arg-type]
        "WARNING",
        "stream orders takes over from generation 2 (pid 4711 on spark-7) after waiting 4.1 s: it has ended",
    ),
    (
        TakeoverEnded(**WHO, generation=3, how="timeout", seconds=60.0, **EARLIER),  # type: ignore[arg-type]
        "WARNING",
        (
            "stream orders takes over from generation 2 (pid 4711 on spark-7) after waiting 60.0 s: it has not ended "
            "in time. It can show no more rows, but Spark may stop this query once if both plan an epoch: start it "
            "again then"
        ),
    ),
    (
        StandbyWaits(**WHO, generation=2, lease=10.0, how="", host="spark-7", pid=4711),  # type: ignore[arg-type]
        "INFO",
        (
            "stream orders: standing by for generation 2 (pid 4711 on spark-7): it takes over when that driver is "
            "gone, or silent for 10 s"
        ),
    ),
    (
        StandbyEnded(**WHO, generation=2, how="gone", takes_over=True, seconds=4.1, host="spark-7", pid=4711),  # type: ignore[arg-type]
        "WARNING",
        (
            "stream orders: the standby takes over from generation 2 (pid 4711 on spark-7) after waiting 4.1 s: its "
            "process is gone"
        ),
    ),
    (
        StandbyEnded(**WHO, generation=0, how="new", takes_over=True, seconds=0.6, host=None, pid=None),  # type: ignore[arg-type]
        "WARNING",
        "stream orders: nobody runs the stream: this driver starts it",
    ),
    (
        StandbyEnded(**WHO, generation=0, how="stopped", takes_over=False, seconds=4.1, host=None, pid=None),  # type: ignore[arg-type]
        "WARNING",
        "stream orders: stands by no longer, after waiting 4.1 s: it was asked to stop",
    ),
    (EpochBegun(**OF_EPOCH), "DEBUG", "epoch 42 begun"),  # type: ignore[arg-type]
    (EpochSkipped(**OF_EPOCH), "INFO", "epoch 42 skipped: it was already written"),  # type: ignore[arg-type]
    (
        EpochStaged(**OF_EPOCH, sink="lake", rows=1, bytes=20_480, seconds=0.5),  # type: ignore[arg-type]
        "DEBUG",
        "epoch 42 staged in lake: 1 row, 20.5 kB, 0.50 s",
    ),
    (EpochPrepared(**OF_EPOCH, rows=1, seconds=0.7), "DEBUG", "epoch 42 prepared: 0.70 s since its batch arrived"),  # type: ignore[arg-type]
    (EpochDecided(**OF_EPOCH, checkpointed=1.0), "DEBUG", "epoch 42 decided: attempt of generation 3"),  # type: ignore[arg-type]
    (committed(), "INFO", "epoch 42 committed to lake: 50,000 rows, 3.1 MB, 0.18 s after Spark's checkpoint"),
    (committed(bytes=None, lag=None), "INFO", "epoch 42 committed to lake: 50,000 rows"),
    (
        committed(Outcome.ALREADY_COMMITTED, bytes=512),
        "INFO",
        "epoch 42 was already visible in lake: 50,000 rows, 512 bytes, 0.18 s after Spark's checkpoint",
    ),
    (EpochDone(**OF_EPOCH, rows=1, seconds=0.2), "DEBUG", "epoch 42 done: 0.20 s to settle"),  # type: ignore[arg-type]
    (
        AttemptAborted(**OF_EPOCH, sink="lake"),  # type: ignore[arg-type]
        "DEBUG",
        "epoch 42: attempt of generation 3 removed from lake",
    ),
    (held(), "WARNING", "stream orders held: epoch 42 cannot be committed to lake: ConnectionError: no route"),
    (
        held(step="stage", tries=7, seconds=95.2),
        "INFO",
        "stream orders held: epoch 42 cannot be staged in lake: ConnectionError: no route (for 95 s, 7 tries)",
    ),
    (
        held(step="abort"),
        "WARNING",
        "stream orders held: a lost attempt at epoch 42 cannot be removed from lake: ConnectionError: no route",
    ),
    (
        held(step="roll"),
        "WARNING",
        "stream orders held: parts after epoch 42 cannot be closed in lake: ConnectionError: no route",
    ),
    (
        held(step="journal", sink="journal", epoch=None),
        "WARNING",
        "stream orders held: the journal or checkpoint cannot be read or written: ConnectionError: no route",
    ),
    (
        StreamResumed(**WHO, sink="lake", tries=7, seconds=96.0),  # type: ignore[arg-type]
        "WARNING",
        "stream orders resumed: lake answers again after 96.0 s",
    ),
    (
        PartsRolled(**WHO, after=42, generation=3, sink="lake", rows=None, bytes=2_000_000_000, seconds=1.0),  # type: ignore[arg-type]
        "INFO",
        "parts closed after epoch 42 in lake: 2.0 GB, 1.00 s",
    ),
    (PartsOpen(**WHO, sink="lake", parts=2, bytes=7), "DEBUG", "2 parts open in lake: 7 bytes"),  # type: ignore[arg-type]
    (
        RecoveryMeasured(
            **WHO,  # type: ignore[arg-type]
            epoch=42,
            seconds=14.2,
            objective=10.0,
            extent=61,
            rows=5,
            bytes=31_000_000,
            turned=True,
        ),
        "WARNING",
        MISSED,
    ),
    (
        RecoveryMeasured(
            **WHO,  # type: ignore[arg-type]
            epoch=42,
            seconds=9.0,
            objective=10.0,
            extent=0,
            rows=None,
            bytes=7,
            turned=False,
        ),
        "DEBUG",
        "stream orders holds its recovery objective of 10.0 s: a crash now would take 9.0 s, extent 0, 7 bytes",
    ),
    (
        StreamRefused(**WHO, epoch=42, error="DataLost", reason="gone"),  # type: ignore[arg-type]
        "ERROR",
        "stream orders stopped at epoch 42: DataLost: gone",
    ),
    (
        StreamRefused(**{**WHO, "stream": ""}, epoch=None, error="Refused", reason="no"),  # type: ignore[arg-type]
        "ERROR",
        "stream stopped: Refused: no",
    ),
    (
        StreamEnded(**WHO, settled=True),  # type: ignore[arg-type]
        "INFO",
        "stream orders ended: every epoch that Spark has checkpointed is visible",
    ),
    (StreamEnded(**WHO, settled=False), "INFO", "stream orders ended: not all epochs are known to be visible"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("event", "level", "text"), LINES, ids=[text for _, _, text in LINES])
def test_the_line_of_each_event(event: Event, level: str, text: str) -> None:
    assert logging.getLevelName(level_of(event)) == level
    assert text_of(event) == text


def test_every_kind_of_event_has_a_line() -> None:
    assert {type(event).__name__ for event, _, _ in LINES} == {kind.__name__ for kind in Event.__subclasses__()}


def test_the_facts_are_json_and_keep_clear_of_logging_s_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="epochal")
    for event, _, _ in LINES:
        LogLines()(event)  # logging refuses facts with the names of its own

        assert json.loads(json.dumps(facts_of(event)))["event"] == event.kind
    assert len(caplog.records) == len(LINES)
    record = vars(next(r for r in caplog.records if vars(r)["event"] == "committed"))
    assert {name: record[name] for name in ("epoch", "sink", "rows", "bytes", "lag", "outcome", "stream")} == {
        "epoch": 42,
        "sink": "lake",
        "rows": 50_000,
        "bytes": 3_100_000,
        "lag": 0.18,
        "outcome": "committed",
        "stream": "orders",
    }


def test_a_line_that_nobody_reads_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("epochal.test.quiet")
    logger.setLevel(logging.WARNING)
    monkeypatch.setattr("epochal.txn.log_lines.text_of", lambda event: 1 / 0)

    LogLines(logger)(committed())


def test_control_characters_of_a_store_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    LogLines()(held(reason="no\x1b[2J route\r"))

    assert caplog.messages == ["stream orders held: epoch 42 cannot be committed to lake: no\\x1b[2J route\\r"]
