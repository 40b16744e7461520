"""How queries and drivers end, other than by a kill: each leaves nothing behind that the next start minds."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from epochal import EpochWriter
from epochal.cli.stream_status import StreamStatus, read_status
from epochal.cli.streams import open_stream
from epochal.cli.verdict import Standing
from epochal.txn.files import LocalFiles
from epochal.txn.live import LiveState, read_live
from epochal.txn.liveness import Liveness
from integration_tests.spark.chains import run_here
from integration_tests.spark.checks import check_at_the_end, committed, leftovers, visible_files
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.queries import archive, run, stream, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_foreach_batch_alone_settles_at_the_end_of_the_interpreter(drivers: Children, world: World) -> None:
    world.feed(2)
    ended = drivers.run(world.root, "--plain", "--deaf")

    assert ended.ending is Ending.DONE, ended.output
    check_at_the_end(world, files=2)


@pytest.mark.parametrize(
    "arguments", [[], pytest.param(["--stop-session"], marks=pytest.mark.matrix), ["--plain", "--stop-session"]]
)
def test_a_driver_that_ends_well_says_nothing_alarming(drivers: Children, world: World, arguments: list[str]) -> None:
    world.feed(2)
    ended = drivers.run(world.root, *arguments)

    assert ended.ending is Ending.DONE, ended.output
    assert "ERROR" not in ended.output
    assert "Traceback" not in ended.output
    check_at_the_end(world, files=2)


def test_a_driver_interrupted_in_mid_stage_ends_and_the_next_goes_on(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    gate = world.root / "gate"
    gate.touch()
    world.feed(3)
    driver = drivers.start(world.root, "--slow-gate", str(gate))
    wait_until(lambda: list(world.root.glob("gate.daemon-*")), "a task to wait")
    driver.interrupt()
    first = driver.wait()
    seen_between = visible_files(world.first)
    gate.unlink()
    run_here(spark, world)

    assert first.ending is Ending.INTERRUPTED, first.output
    assert {file.name[5:17] for file in seen_between} == {"000000000000"}
    check_at_the_end(world, files=3)


def test_a_job_that_leaves_an_epoch_unsettled_does_not_end_well(drivers: Children, world: World) -> None:
    world.feed(1)
    ended = drivers.run_module("integration_tests.spark.unsettled", str(world.root)).wait()

    assert "the upsert was refused" in ended.output
    assert "the Spark session has no jars of Delta" in ended.output
    assert "epochal.delta_settings()" in ended.output
    assert not (world.root / "other" / "commits" / "0").exists()
    assert not world.table.exists()
    assert "Spark says that all is well" in ended.output
    assert "a handler that was there before" in ended.output
    assert f"run `epochal recover {world.checkpoint}`" in ended.output
    assert ended.ending is Ending.FAILED, ended.output


def status_of(world: World) -> StreamStatus:
    return read_status(open_stream(str(world.checkpoint), None))


def test_a_driver_whose_jvm_is_killed_while_python_waits_elsewhere_is_not_taken_for_alive(
    drivers: Children, world: World
) -> None:
    gate = world.root / "gate"
    gate.touch()
    world.feed(2)
    driver = drivers.start(world.root, "--endless", "--wait-elsewhere", str(gate))
    driver.wait_for(world.checkpoint / "commits" / "1")
    driver.wait_until(lambda: status_of(world).view.done_through == 1, "both epochs to be visible")
    assert status_of(world).verdict.standing is Standing.RUNNING
    live = read_live(LocalFiles(), str(world.journal)).live
    assert live is not None
    assert live.jvm is not None
    assert live.jvm.pid not in (None, driver.pid)
    os.kill(driver.pid, signal.SIGSTOP)  # so that nobody but the process table can tell
    os.kill(live.jvm.pid or 0, signal.SIGKILL)
    wait_until(lambda: status_of(world).driver.liveness is not Liveness.ALIVE, "the JVM to end")
    dead = status_of(world).verdict
    os.kill(driver.pid, signal.SIGCONT)
    driver.wait_until(lambda: "JVM" in why_it_ended(world), "the driver to notice")
    stopped = status_of(world).verdict
    gate.unlink()
    ended = driver.wait()

    assert dead.standing is Standing.DEAD
    assert f"pid {driver.pid} on" in dead.text
    assert "it lives, but its JVM has ended" in dead.text
    assert stopped.standing is Standing.FAILED
    assert f"STOPPED by SparkGone: Spark's JVM (pid {live.jvm.pid}) has ended, and the query with it" in stopped.text
    assert "epochal.txn.errors.SparkGone" in ended.output
    assert ended.ending is Ending.FAILED, ended.output
    assert ended.output.count("stopped: SparkGone") == 1
    check_at_the_end(world, files=2)


def slowed(frame: DataFrame, gate: str) -> DataFrame:
    """Rows that wait while the gate is there."""
    from pyspark.sql import functions as f

    @f.udf("long", useArrow=False)
    def slow(number: int) -> int:
        import time

        if os.path.exists(gate):
            with open(f"{gate}.waiting", "w", encoding="ascii"):
                pass
            while os.path.exists(gate):
                time.sleep(0.01)
        return number

    return frame.withColumn("id", slow("id"))


def test_a_query_stopped_in_mid_stage_leaves_nothing_and_goes_on_later(spark: SparkSession, world: World) -> None:
    gate = world.root / "gate"
    gate.touch()
    world.feed(2)
    query = EpochWriter(archive(world)).start(to_checkpoint(slowed(stream(spark, world), str(gate)), world))
    wait_until((world.root / "gate.waiting").exists, "a task to wait")
    query.stop()
    gate.unlink()
    left, seen = leftovers(world.first), visible_files(world.first)
    run(spark, world)

    assert (left, seen) == ([], [])
    check_at_the_end(world, files=2)


def test_an_error_in_the_rows_ends_the_query_as_sparks_own_and_leaves_nothing(
    spark: SparkSession, world: World
) -> None:
    world.feed(3)
    failing = stream(spark, world).selectExpr("id", "file", "kind", "if(id = 9, raise_error('row 9'), word) as word")
    query = EpochWriter(archive(world)).start(to_checkpoint(failing, world))

    with pytest.raises(StreamingQueryException, match="row 9"):
        query.awaitTermination()
    assert "row 9" in why_it_ended(world)
    assert committed(world) == {0}
    assert {file.name[5:17] for file in visible_files(world.first)} == {"000000000000"}
    assert leftovers(world.first) == []
    plain = to_checkpoint(failing, world).foreachBatch(EpochWriter(archive(world))).start()
    with pytest.raises(StreamingQueryException, match="row 9"):
        plain.awaitTermination()
    wait_until(lambda: generation(world) == 2 and "row 9" in why_it_ended(world), "the end to be written")
    run(spark, world)
    assert why_it_ended(world) == ""
    check_at_the_end(world, files=3)


def generation(world: World) -> int:
    live = read_live(LocalFiles(), str(world.journal)).live
    return 0 if live is None else live.generation


def why_it_ended(world: World) -> str:
    """What the live file says about the error that ended the last query; empty if there was none."""
    live = read_live(LocalFiles(), str(world.journal)).live
    if live is None or live.state is not LiveState.ENDED or live.refused is None:
        return ""
    return live.refused.reason
