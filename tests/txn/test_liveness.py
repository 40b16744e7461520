from __future__ import annotations

from dataclasses import replace

import pytest

from epochal.txn.live import SILENT, Live, LiveState
from epochal.txn.liveness import Liveness, driver_status, process_of
from epochal.txn.model import Json
from epochal.txn.process import Process, Running, this_process
from epochal.txn.records import GenerationStarted
from epochal.txn.start import driver

NOW = 1000.0
PROCESS = Process(host="spark-7", pid=4711, ticks=7, machine="boot pid:[1]")


def started(generation: int = 3, **facts: Json) -> GenerationStarted:
    names: dict[str, Json] = {"host": "spark-7", "pid": 4711, "ticks": 7, "machine": "boot pid:[1]", **facts}
    return GenerationStarted(generation=generation, query="1f", base=0, start="5a17", driver=names)


def live(at: float = NOW - 1, state: LiveState = LiveState.IDLE, generation: int = 3, start: str = "5a17") -> Live:
    return Live(lineage="1f", generation=generation, start=start, journal="/j", process=PROCESS, at=at, state=state)


@pytest.mark.parametrize(
    ("latest", "file", "looked_up", "liveness"),
    [
        (started(), live(), Running.YES, Liveness.ALIVE),
        (started(), live(at=0.0), Running.YES, Liveness.ALIVE),  # suspended, but its process is there
        (started(), live(), Running.NO, Liveness.DEAD),  # at once: the fresh heartbeat is the dead driver's
        (started(), live(), Running.UNKNOWN, Liveness.ALIVE),
        (started(), live(at=NOW - SILENT - 1), Running.UNKNOWN, Liveness.SILENT),
        (started(), live(at=NOW + 60), Running.UNKNOWN, Liveness.ALIVE),  # its clock is ahead of ours
        (started(), live(state=LiveState.ENDED), Running.YES, Liveness.ENDED),  # the program goes on without the query
        (started(), live(state=LiveState.ENDED), Running.NO, Liveness.ENDED),
        (started(), None, Running.YES, Liveness.ALIVE),
        (started(), None, Running.NO, Liveness.DEAD),
        (started(), None, Running.UNKNOWN, Liveness.UNKNOWN),
        (started(fence=True), live(generation=2), Running.NO, Liveness.NONE),
        (started(), live(generation=2, state=LiveState.ENDED), Running.NO, Liveness.DEAD),  # a file of the one before
        (started(), live(start="another", state=LiveState.ENDED), Running.NO, Liveness.DEAD),  # of a lost journal
    ],
)
def test_a_driver_is_judged_by_its_process_or_else_by_its_heartbeat(
    latest: GenerationStarted, file: Live | None, looked_up: Running, liveness: Liveness
) -> None:
    status = driver_status(latest, file, NOW, looked_up=lambda _: looked_up)

    assert status.liveness is liveness
    assert status.name == "pid 4711 on spark-7"


def test_a_driver_whose_jvm_is_gone_is_dead_though_its_python_process_lives() -> None:
    jvm = replace(PROCESS, pid=4712, ticks=9)
    file = replace(live(), jvm=jvm)

    dead = driver_status(started(), file, NOW, looked_up=lambda one: Running.NO if one == jvm else Running.YES)
    assert dead.liveness is Liveness.DEAD
    assert dead.name == "pid 4711 on spark-7: it lives, but its JVM has ended"
    for unsure in (Running.YES, Running.UNKNOWN):
        found = {jvm: unsure, PROCESS: Running.YES}
        assert driver_status(started(), file, NOW, looked_up=found.__getitem__).liveness is Liveness.ALIVE
    ended = replace(file, state=LiveState.ENDED)
    assert driver_status(started(), ended, NOW, looked_up=lambda _: Running.NO).liveness is Liveness.ENDED
    assert driver_status(started(), file, NOW, looked_up=lambda _: Running.NO).name == "pid 4711 on spark-7"


def test_a_process_that_runs_but_does_not_report_is_stuck() -> None:
    late, well = live(at=0.0), live()

    assert driver_status(started(), late, NOW, looked_up=lambda _: Running.YES).is_stuck
    assert not driver_status(started(), well, NOW, looked_up=lambda _: Running.YES).is_stuck
    assert not driver_status(started(), late, NOW, looked_up=lambda _: Running.NO).is_stuck


def test_what_a_start_records_names_its_process() -> None:
    assert process_of(driver("1.0")) == this_process()
    assert replace(process_of({"host": 5, "pid": "x"})) == Process()
