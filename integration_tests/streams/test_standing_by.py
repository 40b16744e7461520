"""`epochal run --standby` and `epochal.standby`: what is refused, what is taken over, what is left.

In one process; and, under the mark `matrix`, two processes of one settings file, of which the first is killed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal import Participant
from epochal.cli import status as status_command
from epochal.cli.stream_status import read_status
from epochal.cli.streams import open_stream
from epochal.events import Event, StandbyEnded, StandbyWaits
from epochal.spark_plugins.standby import warming
from epochal.spark_plugins.standby.looking import Lookout
from epochal.spark_plugins.standby.sight import Leader
from epochal.spark_plugins.standby.warming import warm_up
from epochal.spark_plugins.streams.report import AWAY, OK
from epochal.spark_plugins.streams.running import Running, StandingBy
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark.checks import leftovers, visible_rows
from integration_tests.spark.children import Child, Children
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import SCHEMA, World, all_rows
from integration_tests.streams.test_running import BROKEN, ENDLESS, Told, meanwhile
from integration_tests.streams.texts import checked, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

SPARK = {**CHEAP, **SHORT_LIVED, **LOOPBACK, "spark.master": "local[2]"}


def run(spark: SparkSession, world: World, text: str, answer: Told, how: StandingBy) -> int:
    running = Running(say=answer.said.append, complain=answer.complained.append, standing_by=how)
    return running.run(spark, checked(spark, world.root, text))


def leader(world: World, name: str) -> Leader:
    place = str(world.root / f"checkpoint-{name}")
    return Lookout(LocalFiles(), place, lambda _: Journal(LocalFiles(), f"{place}/epochal")).look().leader


def test_streams_that_nobody_runs_are_run_and_one_that_has_ended_is_gone_on_with_if_asked(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    new, ended, again = Told(), Told(), Told()
    codes = [run(spark, world, stream(world, "one"), new, StandingBy())]  # with its throw-away query
    after_one = visible_rows(world.root / "one")
    world.feed(2)
    codes += [run(spark, world, stream(world, "one"), ended, StandingBy(when_ended="leave", warm=False))]
    after_two = visible_rows(world.root / "one")
    codes += [run(spark, world, stream(world, "one"), again, StandingBy(when_ended="take-over", warm=False))]

    assert codes == [OK, OK, OK]
    assert new.complained + ended.complained + again.complained == []
    assert new.said[-1] == "stream 'one' ended; everything that it has checkpointed is visible"
    assert ended.said[-1] == "stream 'one': standing by no longer: the query has ended in order, on another driver"
    assert after_one == after_two == all_rows(1)
    assert visible_rows(world.root / "one") == all_rows(2)
    assert spark.streams.active == []


def test_a_signal_ends_the_waiting(spark: SparkSession, world: World) -> None:
    world.feed(1)
    answer = Told()
    run(spark, world, stream(world, "one"), answer, StandingBy(warm=False))
    notices = world.root / "checkpoint-one" / "epochal-standby"

    def send() -> None:
        wait_until(lambda: notices.is_dir() and any(notices.iterdir()), "the standby to wait")
        os.kill(os.getpid(), signal.SIGTERM)

    sender = meanwhile(send)
    code = run(spark, world, stream(world, "one"), answer, StandingBy(warm=False))
    sender.join()

    assert code == OK
    assert answer.said[-2:] == [
        "SIGTERM: stopping all streams",
        "stream 'one': standing by no longer: it was stopped",
    ]
    assert [*notices.iterdir()] == []


def test_where_one_fails_a_standby_is_to_go_on_with_the_others_too(spark: SparkSession, world: World) -> None:
    world.feed(2)
    answer = Told()
    streams = stream(world, "good", trigger=ENDLESS) + stream(world, "bad", BROKEN, trigger=ENDLESS)
    code = run(spark, world, streams, answer, StandingBy(warm=False))

    assert code == AWAY
    assert (leader(world, "good"), leader(world, "bad")) == (Leader.FAILED, Leader.FAILED)


def of(spark: SparkSession, world: World) -> DataStreamWriter:
    world.feed(1)
    frame = spark.readStream.schema(SCHEMA).parquet(f"file:{world.source}")
    return frame.writeStream.option("checkpointLocation", str(world.checkpoint)).trigger(availableNow=True)


def test_wrong_options_are_reported_at_once(spark: SparkSession, world: World) -> None:
    writer = epochal.EpochWriter(epochal.RollingFileSink(str(world.first)))

    with pytest.raises(epochal.OptionError) as raised:
        epochal.standby(writer, of(spark, world), lease="5 s", when_ended="never")  # type: ignore[arg-type]

    assert raised.value.faults == (
        "lease='5 s': 10 seconds or more; a driver renews it every 5 s",
        "when_ended='never': 'wait', 'leave', 'take-over'",
    )


def test_what_a_start_would_refuse_is_refused_before_the_waiting(spark: SparkSession, world: World) -> None:
    writer = epochal.EpochWriter(epochal.RollingFileSink(str(world.first), bucket_by=["none"]))

    with pytest.raises(epochal.BadRows, match="none"):
        epochal.standby(writer, of(spark, world))


def test_a_query_without_a_checkpoint_of_its_own_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    frame = spark.readStream.schema(SCHEMA).parquet(f"file:{world.source}")

    with pytest.raises(epochal.Refused, match="checkpointLocation"):
        epochal.standby(epochal.EpochWriter(epochal.RollingFileSink(str(world.first))), frame.writeStream)


def test_observers_see_who_waits_and_why_it_ends(spark: SparkSession, world: World) -> None:
    seen: list[Event] = []
    writer = epochal.EpochWriter(epochal.RollingFileSink(str(world.first)), observers=[seen.append])
    query = epochal.standby(writer, of(spark, world), warm=False)
    assert query is not None
    query.awaitTermination()
    stop = threading.Event()

    def end() -> None:
        wait_until(lambda: any(isinstance(event, StandbyWaits) for event in seen), "the standby to wait")
        stop.set()

    meanwhile(end)
    left = epochal.standby(writer, of(spark, world), warm=False, stop=stop)

    (waits,) = [event for event in seen if isinstance(event, StandbyWaits)]
    first, last = [event for event in seen if isinstance(event, StandbyEnded)]
    assert left is None
    assert (first.how, first.takes_over, first.generation) == ("new", True, 0)
    assert (waits.how, waits.generation, waits.pid, waits.stream) == ("ended", 1, os.getpid(), world.root.name)
    assert (last.how, last.takes_over) == ("stopped", False)


@pytest.mark.parametrize("is_stateful", [False, True])
def test_the_throw_away_query_is_like_the_real_one_and_touches_nothing_of_it(
    spark: SparkSession,
    world: World,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_stateful: bool,
) -> None:
    # Its lines are hidden from users; here they tell what it did.
    monkeypatch.setattr(logging.getLogger("epochal"), "filters", [])
    monkeypatch.setattr(warming, "_is_of_another", lambda record: True)
    world.feed(1)
    frame = spark.readStream.schema(SCHEMA).parquet(f"file:{world.source}")
    if is_stateful:
        frame = frame.groupBy("kind", "word").count()
    sinks: list[Participant[DataFrame]] = [
        epochal.RollingFileSink(str(world.first), bucket_by=["kind"], rolling=epochal.Rolling(max_rows=5)),
        epochal.DeltaSink(str(world.table), partition_by=["kind"]),
    ]
    there = {*os.listdir(tempfile.gettempdir())}
    with caplog.at_level(logging.INFO, "epochal"):
        took = warm_up(frame, sinks)

    said = [record.getMessage() for record in caplog.records]
    shown = [line for line in said if line.startswith("epoch 2 committed to")]
    assert took > 0
    assert not [line for line in said if "failed" in line], said
    assert len(shown) == 2, said
    assert not {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("epochal-standby-")} - there
    assert [path.name for path in world.root.iterdir()] == ["source"]
    assert spark.streams.active == []


@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_a_standby_of_the_same_file_goes_on_with_all_streams_when_the_driver_is_killed(
    drivers: Children, world: World
) -> None:
    names = ("one", "two")
    settings = world.root / "streams.toml"
    spark = "".join(f'"{key.removeprefix("spark.")}" = "{value}"\n' for key, value in SPARK.items())
    settings.write_text("[spark]\n" + spark + "".join(stream(world, name, trigger=ENDLESS) for name in names))

    def started() -> Child:
        return drivers.run_module("epochal.cli", "run", str(settings), "--standby")

    def shows(files: int) -> bool:
        return all(visible_rows(world.root / name) == all_rows(files) for name in names)

    def waits(child: Child) -> bool:
        """Warm, for each stream: as `epochal status` says it."""
        found = [read_status(open_stream(str(world.root / f"checkpoint-{name}"), None)) for name in names]
        standbys = [json.loads(json.dumps(status_command.to_json(status)))["standbys"] for status in found]
        return all(any(one["pid"] == child.pid and one["ready"] for one in of_one) for of_one in standbys)

    world.feed(2)
    first = started()
    first.wait_until(lambda: shows(2), "the first epochs")
    second = started()
    second.wait_until(lambda: waits(second), "the standby to be warm")
    world.feed(5)
    first.wait_until(lambda: visible_rows(world.root / "one") > all_rows(2), "an epoch more: it is killed amid others")
    os.killpg(first.pid, signal.SIGKILL)
    world.feed(7)
    second.wait_until(lambda: shows(7), "the standby to have gone on with both streams")
    os.kill(second.pid, signal.SIGTERM)
    ended = second.wait()

    assert ended.code == OK, ended.output
    assert "SIGTERM: stopping all streams" in ended.output
    for name in names:
        latest = Journal(LocalFiles(), str(world.root / f"checkpoint-{name}" / "epochal")).read().latest
        assert latest is not None
        assert (latest.generation, latest.driver.process.pid) == (2, second.pid)
        assert visible_rows(world.root / name) == all_rows(7)
        assert leftovers(world.root / name) == []
