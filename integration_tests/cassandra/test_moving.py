"""A stream into Cassandra is moved back to an older savepoint, or rescaled: what is there is not written twice."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # its usual name

from epochal import DeltaSink, EpochWriter, Rolling, RollingFileSink
from epochal.cli import main
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.spark_plugins.moving.store import SavepointStore
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark import checks
from integration_tests.spark.children import Children
from integration_tests.spark.driver import MAX_ROWS, Ending, cassandra_sinks
from integration_tests.spark.killed_rescale import killed_rescale
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.stateful import format_of, settings_unset
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(900)]


@pytest.mark.parametrize("lost", [False, True], ids=["original at hand", "original lost"])
def test_totals_count_every_row_once_although_epochs_after_the_savepoint_run_again(
    drivers: Children, world: World, space: Keyspace, lost: bool
) -> None:
    arguments = ("--sinks", "cassandra", "--cassandra", streams.make_tables(space))
    world.feed(2)
    assert drivers.run(world.root, *arguments).ending is Ending.DONE
    backups, moved = world.root / "backups", World(world.root / "moved")
    assert main(["savepoint", str(world.checkpoint), str(backups)]) == 0
    (savepoint,) = SavepointStore(LocalSinkFiles(sync=False), str(backups)).manifests()
    world.feed(4)
    assert drivers.run(world.root, *arguments).ending is Ending.DONE
    assert streams.totals(space) == streams.expected_totals(4)
    moved.root.mkdir()
    if lost:
        shutil.rmtree(world.checkpoint)
    restore = ["restore", str(backups / savepoint.name), str(moved.checkpoint)]
    assert main([*restore, "--lost-original"] if lost else restore) == 0
    world.feed(5)
    there = (*arguments, "--at", f"file:{moved.root}")
    killed = drivers.run(world.root, *there, points="before-ledger=kill")  # of epoch 4, with its rows in one table
    assert killed.ending is Ending.KILLED, killed.output
    assert streams.totals(space) == streams.expected_totals(4)
    last = drivers.run(world.root, *there)

    assert last.ending is Ending.DONE, last.output
    assert savepoint.epoch == 1
    assert {int(path.name) for path in (moved.checkpoint / "commits").glob("[0-9]*")} >= {1, 2, 3, 4}
    streams.check_at_the_end(moved, space, files=5)
    assert main(["audit", str(moved.checkpoint)]) == 0


def run_once_each(spark: SparkSession, world: World, sinks: list[Any], files: int) -> None:
    """Each file brings the rows of the one before again; the query's state knows them."""
    world.feed(files)
    again = stream(spark, world).withColumn("id", F.explode(F.array(F.col("id"), F.col("id") - ROWS)))
    frame = again.where("id >= 0").withColumn("file", F.expr(f"id div {ROWS}")).dropDuplicates(["id"])
    EpochWriter(*sinks).start(to_checkpoint(frame, world)).awaitTermination()


def test_rows_totals_tables_and_open_parts_are_exact_over_rescales_from_4_to_2_to_8_to_3_of_which_two_are_killed(
    spark: SparkSession, world: World, space: Keyspace
) -> None:
    def rescale(partitions: int) -> int:
        with settings_unset(spark):
            return main(["rescale", str(world.checkpoint), "--partitions", str(partitions)])

    def killed(partitions: int, number: int, points: str = "") -> int:
        begun, output = world.checkpoint / "offsets" / str(number), world.root / "output"
        until = (lambda: False) if points else begun.exists  # else amid Spark's own steps
        return killed_rescale(str(world.checkpoint), partitions, output, points=points, until=until)

    parts = RollingFileSink(
        str(world.second), name="parts", format="json", bucket_by=["word"], rolling=Rolling(max_rows=MAX_ROWS)
    )
    sinks = [parts, DeltaSink(str(world.table), name="table"), *cassandra_sinks(streams.make_tables(space))]
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    try:
        with format_of(spark, "changelog"):
            run_once_each(spark, world, sinks, 2)
            assert rescale(2) == 0
            run_once_each(spark, world, sinks, 3)
            was_open = checks.visible_rows(world.second)
            assert killed(8, 4) == -signal.SIGKILL
            assert rescale(8) == 0
            run_once_each(spark, world, sinks, 4)
            assert killed(3, 6, "after-rescale-state=kill") == -signal.SIGKILL
            assert rescale(3) == 0
            run_once_each(spark, world, sinks, 6)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))

    assert sum(was_open.values()) < 3 * ROWS, "no part was open"
    assert main(["roll", str(world.checkpoint)]) == 0
    checks.check_at_the_end(world, files=6)
    streams.check_at_the_end(world, space, files=6)
    assert main(["audit", str(world.checkpoint)]) == 0
