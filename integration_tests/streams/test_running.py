"""Several configured streams in one application: they end together, in order, and with the right exit code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK
from epochal.spark_plugins.streams.running import Running
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
    told = Told()

    code = told.run(spark, world, stream(world, "one") + stream(world, "two"))

    assert code == OK
    assert told.complained == []
    for name in ("one", "two"):
        assert f"stream '{name}' ended; everything that it has checkpointed is visible" in told.said
        assert visible_rows(world.root / name) == all_rows(2)
    assert spark.streams.active == []


def test_one_that_fails_stops_the_others_which_are_settled(spark: SparkSession, world: World) -> None:
    world.feed(2)
    told = Told()

    code = told.run(
        spark, world, stream(world, "good", trigger=ENDLESS) + stream(world, "bad", BROKEN, trigger=ENDLESS)
    )

    (complaint,) = told.complained
    assert code == AWAY
    assert complaint.startswith("stream 'bad' failed: ")
    assert "boom" in complaint
    assert "stream 'good' ended; everything that it has checkpointed is visible" in told.said
    assert visible_rows(world.root / "bad") == all_rows(1)  # the epoch before the one that failed
    assert leftovers(world.root / "good") == []
    assert spark.streams.active == []


def test_one_that_is_refused_at_its_start_stops_the_others_with_exit_code_2(spark: SparkSession, world: World) -> None:
    world.feed(1)
    told = Told()
    streams = checked(spark, world.root, stream(world, "good", trigger=ENDLESS) + stream(world, "bad"))
    (world.root / "bad" / "_spark_metadata").mkdir(parents=True)  # after the check, before the start
    (world.root / "bad" / "_spark_metadata" / "0").touch()

    code = Running(say=told.said.append, complain=told.complained.append).run(spark, streams)

    (complaint,) = told.complained
    assert code == FAULTS
    assert "was written by Spark's own file sink" in complaint
    assert "stream 'good' ended; everything that it has checkpointed is visible" in told.said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_and_settles_all_streams(spark: SparkSession, world: World, name: str) -> None:
    world.feed(2)
    told = Told()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def send() -> None:
        wait_until(lambda: visible_rows(world.root / "one") == all_rows(2), "the first epochs")
        os.kill(os.getpid(), signal.Signals[name])

    sender = meanwhile(send)
    code = told.run(spark, world, stream(world, "one", trigger=ENDLESS) + stream(world, "two", trigger=ENDLESS))
    sender.join()

    assert code == OK
    assert told.complained == []
    assert f"{name}: stopping all streams" in told.said
    assert visible_rows(world.root / "one") == all_rows(2)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
