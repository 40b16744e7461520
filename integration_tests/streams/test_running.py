"""Several configured streams in one application: they end together, in order, and with the right exit code."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from epochal.spark_plugins.streams.checking import open_metrics
from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK
from epochal.spark_plugins.streams.running import Running
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark.checks import leftovers, visible_rows
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows
from integration_tests.streams.texts import checked, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BROKEN = """sql = "SELECT id, file, kind, if(file = 1, raise_error('boom'), word) AS word FROM source" """
ENDLESS = "processing_time=0 s"


class Told:
    """What an application says."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.complained: list[str] = []

    def run(self, spark: SparkSession, world: World, text: str) -> int:
        streams = checked(spark, world.root, text)
        assert streams.report.code == OK, streams.report.details()
        return Running(say=self.said.append, complain=self.complained.append).run(spark, streams)


def meanwhile(step: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    return thread


def test_streams_that_read_what_is_there_end_together(spark: SparkSession, world: World) -> None:
    world.feed(2)
    answer = Told()

    later = stream(world, "later") + 'rolling.max_age = "1 h"\n'
    code = answer.run(spark, world, stream(world, "one") + stream(world, "two") + later)

    assert code == OK
    (waiting,) = [line for line in answer.said if line.startswith("stream 'later' ended")]
    assert f"settled, but {len(all_rows(2)):,} rows wait in 1 open part of 'out' and cannot be read yet" in waiting
    assert f"`epochal roll {world.root / 'checkpoint-later'}` does it now" in waiting
    assert answer.complained == []
    for name in ("one", "two"):
        assert f"stream '{name}' ended; everything that it has checkpointed is visible" in answer.said
        assert visible_rows(world.root / name) == all_rows(2)
    assert spark.streams.active == []


def test_one_that_fails_stops_the_others_which_are_settled(spark: SparkSession, world: World) -> None:
    world.feed(2)
    answer = Told()

    code = answer.run(
        spark, world, stream(world, "good", trigger=ENDLESS) + stream(world, "bad", BROKEN, trigger=ENDLESS)
    )

    (complaint,) = answer.complained
    assert code == AWAY
    assert complaint.startswith("stream 'bad' failed: ")
    assert "boom" in complaint
    assert "stream 'good' ended; everything that it has checkpointed is visible" in answer.said
    assert visible_rows(world.root / "bad") == all_rows(1)  # the epoch before the one that failed
    assert leftovers(world.root / "good") == []
    assert spark.streams.active == []


def test_one_that_is_refused_at_its_start_stops_the_others_with_exit_code_2(spark: SparkSession, world: World) -> None:
    world.feed(1)
    answer = Told()
    streams = checked(spark, world.root, stream(world, "good", trigger=ENDLESS) + stream(world, "bad"))
    (world.root / "bad" / "_spark_metadata").mkdir(parents=True)  # after the check, before the start
    (world.root / "bad" / "_spark_metadata" / "0").touch()

    code = Running(say=answer.said.append, complain=answer.complained.append).run(spark, streams)

    (complaint,) = answer.complained
    assert code == FAULTS
    assert "was written by Spark's own file sink" in complaint
    assert "stream 'good' ended; everything that it has checkpointed is visible" in answer.said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_and_settles_all_streams(spark: SparkSession, world: World, name: str) -> None:
    world.feed(2)
    answer = Told()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def send() -> None:
        wait_until(lambda: visible_rows(world.root / "one") == all_rows(2), "the first epochs")
        os.kill(os.getpid(), signal.Signals[name])

    sender = meanwhile(send)
    code = answer.run(spark, world, stream(world, "one", trigger=ENDLESS) + stream(world, "two", trigger=ENDLESS))
    sender.join()

    assert code == OK
    assert answer.complained == []
    assert f"{name}: stopping all streams" in answer.said
    assert visible_rows(world.root / "one") == all_rows(2)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# Claims the next generation, as a driver does, and serves something at a port.
OTHER = """
import dataclasses, socket, sys
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.driver_facts import this_driver

journal = Journal(LocalFiles(), sys.argv[1])
latest = journal.read().latest
journal.claim(dataclasses.replace(latest, generation=2, start="other", driver=this_driver(""), at=journal.now()))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_stream_that_another_process_runs_is_named_before_anything_is_written(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    answer = Told()
    assert answer.run(spark, world, stream(world, "one")) == OK
    journal = str(world.root / "checkpoint-one" / "epochal")
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, journal], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        port = other.stdout.readline().strip()
        found = checked(spark, world.root, stream(world, "one", f'metrics = "prometheus://127.0.0.1:{port}"'))
        at_first = found.report.code, found.report.details(), found.report.streams[0].verdict
        open_metrics(spark, found)
    finally:
        other.communicate()

    (report,) = found.report.streams
    who = f"pid {other.pid} on {platform.node()} (generation 2, since "
    assert at_first[0] == OK
    assert at_first[1].startswith(f"one: runs already: {who}")
    assert (
        "which is alive, and metrics are served at the address that this one names. A start is refused" in at_first[1]
    )
    assert at_first[2] == "ok, runs already"
    assert report.to_json()["driver"] == {**(report.driver or {}), "pid": other.pid, "liveness": "alive"}
    (fault,) = report.faults
    assert f"metrics cannot be served at 127.0.0.1:{port}" in fault
    assert f"This very stream runs already: {who}" in fault
    assert found.report.code == FAULTS
    latest = Journal(LocalFiles(), journal).read().latest
    assert latest is not None
    assert (latest.generation, latest.start) == (2, "other")  # nobody has taken over
