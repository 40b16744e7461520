from __future__ import annotations

from dataclasses import replace

import pytest

from epochal.txn.driver_facts import DriverFacts, this_driver
from epochal.txn.live import SILENT, Live, LiveState
from epochal.txn.liveness import Liveness, driver_status
from epochal.txn.model import Json
from epochal.txn.process import Process, Running, this_process
from epochal.txn.records import GenerationStarted

NOW = 1000.0
PROCESS = Process(host="spark-7", pid=4711, ticks=7, machine="boot pid:[1]")


def started(generation: int = 3, **facts: Json) -> GenerationStarted:
    names: dict[str, Json] = {"host": "spark-7", "pid": 4711, "ticks": 7, "machine": "boot pid:[1]", **facts}
    return GenerationStarted(
        generation=generation, query="1f", base=0, start="5a17", driver=DriverFacts.from_json(names)
    )


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


@pytest.mark.parametrize(
    ("at", "looked_up", "text"),
    [
        (NOW - 31, Running.UNKNOWN, "heartbeat 31 s old by this machine's clock; clocks may differ"),
        (NOW + 3600, Running.UNKNOWN, "heartbeat 60 min in the future by this machine's clock; clocks differ"),
        (NOW - 31, Running.YES, "last heard of 31 s ago"),
        (NOW + 1, Running.YES, "last heard of 0 s ago"),
    ],
)
def test_people_are_told_by_which_clock_a_heartbeat_is_old(at: float, looked_up: Running, text: str) -> None:
    assert driver_status(started(), live(at=at), NOW, looked_up=lambda _: looked_up).last_heard == text


@pytest.mark.parametrize("running", [Running.UNKNOWN, Running.YES])
def test_a_heartbeat_from_the_future_is_never_taken_for_death(running: Running) -> None:
    status = driver_status(started(), live(at=NOW + 86_400), NOW, looked_up=lambda _: running)

    assert status.liveness is Liveness.ALIVE
    assert not status.is_stuck


def test_what_a_start_records_names_its_process() -> None:
    assert DriverFacts.from_json(this_driver("1.0").to_json()).process == this_process()
    assert DriverFacts.from_json({"host": 5, "pid": "x"}).process == Process()
