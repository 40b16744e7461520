"""What a look shows of a driver: by its start, its last live file and the process table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochal.spark_plugins.standby.sight import Leader, see
from epochal.txn.driver_facts import DriverFacts
from epochal.txn.live import Live, LiveRefusal, LiveState
from epochal.txn.model import Json
from epochal.txn.process import Process, Running
from epochal.txn.records import GenerationStarted

PYTHON = Process(host="spark-1", pid=11, ticks=1, machine="m1")
JVM = Process(host="spark-1", pid=12, ticks=2, machine="m1")
LATEST = GenerationStarted(generation=3, query="q", base=0, start="third", driver=DriverFacts(process=PYTHON))
LIVE = Live(lineage="q", generation=3, start="third", journal="/j", process=PYTHON, jvm=JVM, at=0.0)
ENDED = replace(LIVE, state=LiveState.ENDED)


def leader(
    live: Live | None = LIVE, python: Running = Running.YES, jvm: Running = Running.YES, **driver: Json
) -> Leader:
    latest = replace(LATEST, driver=DriverFacts.from_json({**LATEST.driver.to_json(), **driver}))
    found = {PYTHON: python, JVM: jvm}
    return see(latest, None if live is None else (7, live), found.__getitem__).leader


def refused(error: str) -> Live:
    return replace(ENDED, refused=LiveRefusal(error=error, reason="why", at=0.0))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (leader(), Leader.RUNS),
        (leader(None), Leader.RUNS),
        (leader(python=Running.UNKNOWN, jvm=Running.UNKNOWN), Leader.RUNS),  # elsewhere: only its silence tells
        (leader(python=Running.NO), Leader.GONE),
        (leader(None, python=Running.NO), Leader.GONE),
        (leader(jvm=Running.NO), Leader.GONE),
        (leader(ENDED, python=Running.NO), Leader.ENDED),
        (leader(ENDED), Leader.ENDED),
        (leader(refused("SparkGone"), python=Running.NO), Leader.FAILED),
        (leader(refused("TwoDrivers")), Leader.FAILED),
        (leader(refused("StreamingQueryException")), Leader.FAILED),
        (leader(refused("Rewound")), Leader.REFUSED),
        (leader(refused("DataLost")), Leader.REFUSED),
        (leader(refused("BadRows")), Leader.REFUSED),
        (leader(fence=True), Leader.FENCED),
        (leader(fence=True, retired={"why": "moved"}), Leader.RETIRED),
        (leader(replace(ENDED, start="another")), Leader.RUNS),  # the file of another start
    ],
)
def test_how_a_driver_stands(found: Leader, expected: Leader) -> None:
    assert found is expected


def test_a_jvm_that_outlives_its_driver_is_seen() -> None:
    found = {PYTHON: Running.NO, JVM: Running.YES}

    assert see(LATEST, (7, LIVE), found.__getitem__).jvm_lives
    assert not see(LATEST, (7, LIVE), lambda _: Running.NO).jvm_lives


def test_a_stream_without_a_start_has_nobody() -> None:
    assert see(None, None, lambda _: Running.YES).leader is Leader.NOBODY


def test_the_reason_of_an_error_is_kept_for_people() -> None:
    assert see(LATEST, (7, refused("Rewound")), lambda _: Running.YES).reason == "Rewound: why"
