"""The first line of `epochal status` and its exit code, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epochal.cli import exit_codes
from epochal.cli.verdict import Facts, Standing, judge
from epochal.txn.driver_facts import Retirement
from epochal.txn.live import Live, LiveHeld, LiveRefusal, LiveState
from epochal.txn.liveness import DriverStatus, Liveness
from epochal.txn.process import Process
from epochal.txn.unpublished import Unpublished

NOW = 1000.0
PROCESS = Process(host="vm", pid=4711)
RECOVER = "epochal recover checkpoints/orders"


def live(**facts: Any) -> Live:
    return Live(lineage="1f", generation=3, start="5a", journal="/j", process=PROCESS, at=998.0, **facts)


IDLE = live()
STAGING = live(state=LiveState.STAGING, epoch=42)


def driver(liveness: Liveness, of: Live | None = IDLE, heartbeat: float | None = 2.0) -> DriverStatus:
    return DriverStatus(liveness=liveness, process=PROCESS, live=of, heartbeat=heartbeat if of else None)


def held(sink: str = "serving", epoch: int | None = 42, step: str = "commit") -> Live:
    reason = LiveHeld(
        sink=sink, step=step, reason="sink 'serving', epoch 42: ConnectionError: no route", since=640.0, epoch=epoch
    )
    return live(state=LiveState.HELD, held=reason, sink=sink)


ALIVE = driver(Liveness.ALIVE)
ALIVE_UNSEEN = driver(Liveness.ALIVE, None)
DEAD = driver(Liveness.DEAD)
SILENT = replace(driver(Liveness.SILENT, heartbeat=200.0), elsewhere=True)
ENDED = driver(Liveness.ENDED)
NONE = driver(Liveness.NONE, None)
OPEN = {"unpublished": Unpublished(parts=1, rows=500, bytes=9_000, sinks=("files",))}
WAITS = "epoch 41 is settled everywhere, but 500 rows wait in 1 open part of 'files' and cannot be read yet"
LATER = "a query that runs publishes each part at a limit of its sink; `epochal roll CHECKPOINT` does it now"
UNKNOWN = driver(Liveness.UNKNOWN, None)
FAILED = driver(
    Liveness.ENDED, live(refused=LiveRefusal(error="BadRows", reason="column 'id' is missing.", at=990.0, epoch=42))
)

WELL, AWAY, REFUSED, UNSETTLED, DIED = 0, 1, 2, 4, 5
OVER = Retirement(why="moved", by="root@vm", at="2026-11-18")
LATE = {"unsettled": (42,), "missing_in": ("lake",), "committed": 42}

CASES: list[tuple[str, DriverStatus, dict[str, Any], int, str]] = [
    # state, driver, what differs from "epoch 41 is visible, nothing else", exit code, first line
    ("running", ALIVE, {}, WELL, "running: epoch 41 is visible everywhere; the driver (pid 4711 on vm) is alive"),
    (
        "running",
        ALIVE,
        {"done": -1},
        WELL,
        "running: no epoch is visible yet; the driver (pid 4711 on vm) is alive",
    ),
    (
        "running",
        driver(Liveness.ALIVE, STAGING),
        {"under_way": 42},
        WELL,
        "running: epoch 41 is visible everywhere, epoch 42 is being staged; the driver (pid 4711 on vm) is alive",
    ),
    (
        "running",
        ALIVE,
        {"under_way": 42},
        WELL,
        "running: epoch 41 is visible everywhere, epoch 42 is under way; the driver (pid 4711 on vm) is alive",
    ),
    (
        "running",
        ALIVE,
        {"in_doubt": (42,)},
        WELL,
        (
            "running: epoch 41 is visible everywhere, epoch 42 waits for Spark's checkpoint; the driver (pid 4711 on "
            "vm) is alive"
        ),
    ),
    (
        "running",
        ALIVE,
        LATE,
        WELL,
        ("running: epoch 41 is visible everywhere, epoch 42 is being committed; the driver (pid 4711 on vm) is alive"),
    ),
    (
        "held",
        ALIVE_UNSEEN,
        LATE,
        UNSETTLED,
        (
            "unsettled: epoch 42 is checkpointed but not visible in 'lake'. The driver (pid 4711 on vm) is alive and "
            "finishes it"
        ),
    ),
    (
        "held",
        driver(Liveness.ALIVE, held()),
        {"unsettled": (42, 43), "missing_in": ("serving",), "committed": 43},
        UNSETTLED,
        (
            "HELD: sink 'serving' has not shown epochs 42, 43 for 6 min: sink 'serving', epoch 42: ConnectionError: no "
            "route. Start the store; the driver (pid 4711 on vm) retries by itself"
        ),
    ),
    (
        "held",
        driver(Liveness.ALIVE, held(step="stage")),
        {"under_way": 42, "unsettled": (41,), "missing_in": ("lake",)},
        UNSETTLED,
        (
            "HELD: sink 'serving' has not taken epoch 42 for 6 min: sink 'serving', epoch 42: "
            "ConnectionError: no route. "
            "Start the store; the driver (pid 4711 on vm) retries by itself"
        ),
    ),
    (
        "held",
        driver(Liveness.ALIVE, held("journal", None)),
        {},
        UNSETTLED,
        (
            "HELD: the journal has not answered for 6 min: sink 'serving', epoch 42: "
            "ConnectionError: no route. Bring its "
            "file system back; the driver (pid 4711 on vm) retries by itself"
        ),
    ),
    (
        "held",
        driver(Liveness.ALIVE, heartbeat=200.0),
        {},
        UNSETTLED,
        (
            "HELD: the driver (pid 4711 on vm) is alive but has not reported for 3 min; epoch 41 is visible "
            "everywhere. It is suspended or stuck, or cannot write beside its journal: look at its log"
        ),
    ),
    (
        "dead",
        DEAD,
        {},
        DIED,
        (
            "driver dead (pid 4711 on vm): epoch 41 is visible everywhere. Nothing is in doubt; start the "
            "query again when it should go on"
        ),
    ),
    (
        "dead",
        SILENT,
        {},
        DIED,
        (
            "driver dead, it seems (pid 4711 on vm: heartbeat 3 min old by this machine's clock; clocks may differ): "
            "epoch 41 is visible everywhere. Nothing is in doubt; start the query again when it should go on"
        ),
    ),
    (
        "dead",
        DEAD,
        {"under_way": 42, "staging": True},
        DIED,
        ("driver dead (pid 4711 on vm): epoch 42 was being staged; the next start replays it. Start the query again"),
    ),
    (
        "dead",
        DEAD,
        {"under_way": 42},
        DIED,
        "driver dead (pid 4711 on vm): epoch 42 was under way; the next start replays it. Start the query again",
    ),
    (
        "dead",
        DEAD,
        {"in_doubt": (42,)},
        DIED,
        (
            "driver dead (pid 4711 on vm): epoch 42 is in doubt (staged, but not in Spark's commits/): the next start "
            "replays or finishes it. Start the query again"
        ),
    ),
    (
        "dead",
        DEAD,
        {**LATE, "under_way": 43},
        DIED,
        (
            "driver dead (pid 4711 on vm): epoch 42 is checkpointed but not visible in 'lake'. Run `epochal recover "
            "checkpoints/orders`"
        ),
    ),
    (
        "dead",
        DEAD,
        {"unsettled": (42,), "committed": 41, "missing_in": ("lake", "archive")},
        DIED,
        (
            "driver dead (pid 4711 on vm): epoch 42 is decided but not visible in 'lake', 'archive'. Run `epochal "
            "recover checkpoints/orders`"
        ),
    ),
    (
        "dead",
        DEAD,
        {"unsettled": (42,), "committed": 42},
        DIED,
        (
            "driver dead (pid 4711 on vm): epoch 42 is visible in every sink but not recorded as done. Run `epochal "
            "recover checkpoints/orders`"
        ),
    ),
    ("stopped", ENDED, {}, WELL, "stopped and settled: epoch 41 is visible everywhere; nothing to do"),
    (
        "stopped",
        ENDED,
        {"under_way": 42, "staging": True},
        WELL,
        "stopped and settled: epoch 41 is visible everywhere; epoch 42 was being staged; the next start replays it",
    ),
    (
        "stopped",
        ENDED,
        LATE,
        UNSETTLED,
        "stopped: epoch 42 is checkpointed but not visible in 'lake'. Run `epochal recover checkpoints/orders`",
    ),
    (
        "failed",
        FAILED,
        {"under_way": 42, "staging": True},
        REFUSED,
        "STOPPED by BadRows: column 'id' is missing. Epoch 42 was being staged; the next start replays it",
    ),
    ("failed", FAILED, {}, REFUSED, "STOPPED by BadRows: column 'id' is missing. Epoch 41 is visible everywhere"),
    (
        "stopped",
        FAILED,
        LATE,
        UNSETTLED,
        (
            "stopped by BadRows: column 'id' is missing: epoch 42 is checkpointed but not visible "
            "in 'lake'. Run `epochal "
            "recover checkpoints/orders`"
        ),
    ),
    (
        "stopped",
        NONE,
        {},
        WELL,
        (
            "stopped by a command (`epochal roll`, `gc --fence` or `retire`) and settled: epoch 41 is visible "
            "everywhere; nothing to "
            "do"
        ),
    ),
    (
        "running",
        driver(Liveness.ALIVE, live(state=LiveState.WAITING, waits_for="generation 2, pid 17 on vm")),
        {},
        WELL,
        (
            "taking over: the driver (pid 4711 on vm) waits for generation 2, pid 17 on vm, to end; epoch 41 is "
            "visible everywhere"
        ),
    ),
    (
        "retired",
        NONE,
        {"retired": OVER, "refusal": "of whatever kind", "unreachable": {"lake": "gone"}},
        WELL,
        "retired 2026-11-18 by root@vm: moved; by the journal epoch 41 is visible everywhere",
    ),
    (
        "stopped",
        NONE,
        {"retired": OVER, **LATE},
        UNSETTLED,
        (
            "stopped by a command (`epochal roll`, `gc --fence` or `retire`): epoch 42 is checkpointed but not "
            "visible in 'lake'. Run `epochal recover checkpoints/orders`"
        ),
    ),
    (
        "unknown",
        UNKNOWN,
        {},
        WELL,
        (
            "settled: epoch 41 is visible everywhere; nothing tells from here whether the driver (pid 4711 on vm) "
            "runs: it writes no live file"
        ),
    ),
    (
        "unknown",
        UNKNOWN,
        LATE,
        UNSETTLED,
        (
            "unsettled: epoch 42 is checkpointed but not visible in 'lake'; nothing tells from here whether the driver "
            "(pid 4711 on vm) runs: it writes no live file. If none runs, finish it. Run `epochal recover "
            "checkpoints/orders`"
        ),
    ),
    (
        "refused",
        ENDED,
        {"refusal": "the target was emptied"},
        REFUSED,
        "REFUSED: a start would be refused: the target was emptied",
    ),
    (
        "refused",
        ALIVE,
        {"refusal": "the target was emptied", "unreachable": {"lake": "away"}},
        REFUSED,
        "REFUSED: the driver (pid 4711 on vm) is alive, but a start would be refused: the target was emptied",
    ),
    (
        "running",
        ALIVE,
        {"unreachable": {"serving": "no route"}},
        AWAY,
        (
            "running: by the journal epoch 41 is visible everywhere; the driver (pid 4711 on vm) is alive; sink "
            "'serving' cannot be reached from here: no route"
        ),
    ),
    (
        "stopped",
        ENDED,
        {"not_here": {"queue": "no participant of type 'queue' is installed here"}},
        AWAY,
        (
            "stopped and settled: by the journal epoch 41 is visible everywhere; sink 'queue' was not checked: no "
            "participant of type 'queue' is installed here"
        ),
    ),
    (
        "dead",
        DEAD,
        {"unreachable": {"serving": "no route"}},
        DIED,
        (
            "driver dead (pid 4711 on vm): by the journal epoch 41 is visible everywhere. Nothing is in doubt; start "
            "the query again when it should go on; sink 'serving' cannot be reached from here: no route"
        ),
    ),
    (
        "held",
        driver(Liveness.ALIVE, held()),
        {"unsettled": (42,), "missing_in": ("serving",), "unreachable": {"serving": "no route"}},
        UNSETTLED,
        (
            "HELD: sink 'serving' has not shown epoch 42 for 6 min: sink 'serving', epoch 42: "
            "ConnectionError: no route. "
            "Start the store; the driver (pid 4711 on vm) retries by itself"
        ),
    ),
    # Rows in open parts are settled and cannot be read: the exit codes stay, the words differ.
    (
        "running",
        ALIVE,
        OPEN,
        WELL,
        (
            f"running: {WAITS}: each part appears when it reaches a limit of its sink; the driver (pid 4711 on vm) is "
            "alive"
        ),
    ),
    (
        "running",
        ALIVE,
        {"done": -1, "unpublished": Unpublished(parts=2, rows=None, bytes=0, sinks=("a", "b"))},
        WELL,
        (
            "running: rows wait in 2 open parts of 'a', 'b' and cannot be read yet: each part appears when it reaches "
            "a limit of its sink; the driver (pid 4711 on vm) is alive"
        ),
    ),
    ("stopped", ENDED, OPEN, WELL, f"stopped and settled: {WAITS}; {LATER}"),
    (
        "stopped",
        ENDED,
        {**OPEN, "uncounted": ("queue",)},
        AWAY,
        f"stopped and settled: {WAITS}; whether more wait in 'queue' was not checked; {LATER}",
    ),
    (
        "running",
        ALIVE,
        {"uncounted": ("queue",)},
        AWAY,
        (
            "running: epoch 41 is settled everywhere; whether rows wait in open parts of 'queue' was not checked; the "
            "driver (pid 4711 on vm) is alive"
        ),
    ),
    (
        "stopped",
        ENDED,
        {**OPEN, "under_way": 42},
        WELL,
        f"stopped and settled: {WAITS}; epoch 42 was under way; the next start replays it; {LATER}",
    ),
    ("failed", FAILED, OPEN, REFUSED, f"STOPPED by BadRows: column 'id' is missing. E{WAITS[1:]}"),
    ("dead", DEAD, OPEN, DIED, f"driver dead (pid 4711 on vm): {WAITS}. Start the query again; {LATER}"),
    (
        "unknown",
        UNKNOWN,
        OPEN,
        WELL,
        (
            f"settled: {WAITS}; {LATER}; nothing tells from here whether the driver (pid 4711 on vm) runs: it writes "
            "no live file"
        ),
    ),
]


@pytest.mark.parametrize(("state", "driver", "facts", "code", "line"), CASES)
def test_each_state_has_one_sentence_at_most_one_command_and_a_code(
    state: str, driver: DriverStatus, facts: dict[str, Any], code: int, line: str
) -> None:
    given = {"done": 41, "committed": 41, **facts}

    verdict = judge(Facts(driver=driver, now=NOW, recover=RECOVER, **given))

    assert (verdict.standing.value, verdict.code, verdict.line) == (state, code, line)
    assert verdict.line.count("Run `") == (1 if verdict.command else 0)


def test_every_state_has_a_case() -> None:
    assert {case[0] for case in CASES} == {standing.value for standing in Standing}
    assert {case[1].liveness for case in CASES} == set(Liveness)


def test_codes_are_distinct_and_explained() -> None:
    codes = [value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)]

    assert len(set(codes)) == len(codes)
    assert set(codes) == set(exit_codes.MEANINGS)


def test_a_driver_without_a_known_process_has_a_name() -> None:
    assert replace(UNKNOWN, process=Process()).name == "unknown"
    assert replace(UNKNOWN, process=Process(host="vm")).name == "vm"
