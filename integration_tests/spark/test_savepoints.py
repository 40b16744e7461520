"""Savepoints of stateful queries that run under load, in each format of Spark's state; what is restored is exact."""

from __future__ import annotations

import itertools
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming import StatefulProcessor

import epochal
from epochal import EpochQuery, EpochWriter, FencedOut, ForeignTarget, RollingFileSink, TwoJournals
from epochal.cli import main
from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.taking import take
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.load import is_of_both, is_told, last_commit, under_load
from integration_tests.spark.operators import Query, Result, join, listed_after, rows_after, with_variables
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.stateful import BRIEF, FORMATS, Forked, expected, format_of, put_away, shown, start
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, WORDS, World, put_source_file, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ENDLESS = {"processingTime": "0 seconds"}


@pytest.fixture(params=FORMATS)
def settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """A format of Spark's state, with snapshots every few epochs, and what is older than five epochs removed."""
    with format_of(spark, request.param, BRIEF):
        yield request.param


def taken_while_it_runs(spark: SparkSession, world: World, number: int, settings: str) -> list[Manifest]:
    world.feed(1)
    return taken_of(start(spark, world, trigger=ENDLESS), world, number, settings)


def taken_of(query: EpochQuery, world: World, number: int, settings: str) -> list[Manifest]:
    """Savepoints of a query under load, each of another epoch, so many at least, until maintenance was at work."""
    query.processAllAvailable()
    found: list[Manifest] = []
    try:
        with under_load(world, lambda: last_commit(world)):
            while len(found) < number or not is_told(found, settings):
                before = found[-1].epoch if found else -1
                wait_until(lambda b=before: last_commit(world) > b, "the next epoch")  # type: ignore[misc]
                manifest = take(str(world.checkpoint), str(world.root / "backups"))
                if manifest.epoch > before:
                    found.append(manifest)
    finally:
        query.stop()
    return found


def forked(world: World, manifest: Manifest, name: str) -> Forked:
    """A fork of a savepoint, with a target of its own."""
    fork = Forked(world.root / name, world)
    fork.root.mkdir()
    savepoint = str(world.root / "backups" / manifest.name)
    assert main(["restore", savepoint, str(fork.checkpoint), "--fork"]) == 0
    return fork


def check_forks(spark: SparkSession, world: World, manifests: list[Manifest]) -> None:
    files = len(list(world.source.iterdir())) + 1
    put_source_file(world.source, files - 1, rows_of(files - 1))  # so that each fork has an epoch to write
    for number, manifest in enumerate(manifests):
        fork = forked(world, manifest, f"fork-{number}")
        start(spark, fork, files=1000).awaitTermination()
        epochs = shown(spark, fork)

        assert min(epochs) == manifest.epoch + 1
        assert epochs[max(epochs)] == expected(files), f"savepoint of epoch {manifest.epoch}"


def test_savepoints_of_a_query_under_load_are_exact_and_the_stream_moves_on_from_one(
    spark: SparkSession, world: World, settings: str
) -> None:
    manifests = taken_while_it_runs(spark, world, 2, settings)
    check_forks(spark, world, manifests[-2:-1])
    ahead = last_commit(world)
    moved = Forked(world.root / "moved", world)
    moved.root.mkdir()
    (moved.root / "first").symlink_to(world.first)
    savepoint = str(world.root / "backups" / manifests[-1].name)
    assert main(["restore", savepoint, str(moved.checkpoint)]) == 0
    put_away(world)  # nothing of it is needed any more
    start(spark, moved).awaitTermination()
    epochs = shown(spark, world)

    assert ahead >= manifests[-1].epoch
    files = len(list(world.source.iterdir()))
    assert epochs[max(epochs)] == expected(files)
    for before, after in itertools.pairwise(sorted(epochs)):
        assert after == before + 1
        assert epochs[before] <= epochs[after], f"{settings}: epoch {after} has less than epoch {before}"


@pytest.mark.matrix
def test_25_savepoints_of_a_query_under_load_are_exact(spark: SparkSession, world: World, settings: str) -> None:
    manifests = taken_while_it_runs(spark, world, 25, settings)
    of_both = sum(map(is_of_both, manifests))
    print(f"{settings}: {len(manifests)} savepoints, {of_both} of them with snapshots and changes since")

    assert len({manifest.epoch for manifest in manifests}) >= 25
    check_forks(spark, world, manifests)


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["changelog", "format 2"])
@pytest.mark.parametrize(
    ("query", "result"),
    [(join, lambda files: rows_after(files, begin=1)), (with_variables, listed_after)],
    ids=["join", "transformWithState"],
)
def test_savepoints_of_a_join_and_of_transform_with_state_under_load_are_exact(
    spark: SparkSession, world: World, query: Query, result: Callable[[int], Result], form: str
) -> None:
    def begin(world: World, **trigger: Any) -> EpochQuery:
        frame, mode = query(stream(spark, world))
        sink = RollingFileSink(str(world.first), format="json")
        return EpochWriter(sink).start(to_checkpoint(frame, world, mode, **trigger))

    def rows(world: World, *, through: float = math.inf) -> Result:
        epochs = [epoch for epoch in epochal.published(str(world.first)) if epoch.epoch <= through]
        files = [str(world.first / name) for epoch in epochs for name, _ in epoch.files]
        found = spark.read.schema("id long, word string").json(files).collect() if files else []
        return Counter((row[0], row[1]) for row in found)

    with format_of(spark, form, BRIEF):
        world.feed(1)
        manifests = taken_of(begin(world, **ENDLESS), world, 5, form)
        files = len(list(world.source.iterdir())) + 1
        put_source_file(world.source, files - 1, rows_of(files - 1))
        for number, manifest in enumerate(manifests):
            fork = forked(world, manifest, f"fork-{number}")
            begin(fork).awaitTermination()

            assert rows(world, through=manifest.epoch) + rows(fork) == result(files), f"{form}: {manifest.epoch}"


def test_of_an_original_that_runs_and_a_restored_stream_one_is_fenced_and_no_epoch_is_there_twice(
    spark: SparkSession, world: World
) -> None:
    world.feed(3)
    query = start(spark, world, trigger=ENDLESS)
    query.processAllAvailable()
    manifest = take(str(world.checkpoint), str(world.root / "backups"))
    world.feed(5)
    query.processAllAvailable()
    moved = Forked(world.root / "moved", world)
    moved.root.mkdir()
    (moved.root / "first").symlink_to(world.first)
    savepoint = str(world.root / "backups" / manifest.name)
    assert main(["restore", savepoint, str(moved.checkpoint), "--wait", "0"]) == 0
    world.feed(8)
    with pytest.raises((FencedOut, TwoJournals)):
        query.awaitTermination()
    start(spark, moved).awaitTermination()

    assert shown(spark, world) == {epoch: expected(epoch + 1) for epoch in range(8)}
    with pytest.raises(epochal.Refused, match="has moved"):
        start(spark, world)


def test_a_fork_is_refused_on_the_targets_of_the_original(spark: SparkSession, world: World) -> None:
    world.feed(2)
    start(spark, world).awaitTermination()
    manifest = take(str(world.checkpoint), str(world.root / "backups"))
    fork = Forked(world.root / "fork", world)
    fork.root.mkdir()
    (fork.root / "first").symlink_to(world.first)
    assert main(["restore", str(world.root / "backups" / manifest.name), str(fork.checkpoint), "--fork"]) == 0

    with pytest.raises(ForeignTarget, match="Nothing was written"):
        start(spark, fork)
    assert sorted(shown(spark, world)) == [0, 1]


def counting() -> StatefulProcessor:
    """Counts the rows of each word. Made here, so that workers get the class itself and import no tests."""

    class Counting(StatefulProcessor):
        """How many rows a word has had."""

        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  # Spark's
            import pandas as pd

            before = self._count.get()[0] if self._count.exists() else 0
            total = before + sum(len(frame) for frame in rows)
            self._count.update((total,))
            yield pd.DataFrame({"word": [key[0]], "n": [total]})

        def close(self) -> None:
            """Nothing to do."""

    return Counting()


def test_a_stream_whose_state_names_its_own_place_goes_on_elsewhere(spark: SparkSession, world: World) -> None:
    def run(checkpoint: Path, files: int) -> None:
        world.feed(files)
        source = spark.readStream.schema("id long, file long, kind string, word string")
        frame = source.option("maxFilesPerTrigger", 1).parquet(str(world.source)).groupBy("word")
        counted = frame.transformWithStateInPandas(counting(), "word string, n long", "Update", "none")
        writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
        sink = RollingFileSink(str(world.first), format="json")
        EpochWriter(sink).start(writer.trigger(availableNow=True)).awaitTermination()

    with format_of(spark, "changelog"):
        run(world.checkpoint, 2)
        manifest = take(str(world.checkpoint), str(world.root / "backups"))
        moved = world.root / "moved"
        assert main(["restore", str(world.root / "backups" / manifest.name), str(moved)]) == 0
        put_away(world)
        run(moved, 4)

    (*_, last) = epochal.published(str(world.first))
    rows = spark.read.schema("word string, n long").json([str(world.first / name) for name, _ in last.files]).collect()
    assert last.epoch == 3
    assert {row[0]: row[1] for row in rows} == {word: 4 * ROWS // len(WORDS) for word in WORDS}


@pytest.mark.matrix
@pytest.mark.parametrize("lost", [False, True], ids=["original at hand", "original lost"])
def test_files_and_tables_that_are_ahead_of_a_savepoint_get_every_row_once(
    drivers: Children, world: World, lost: bool
) -> None:
    arguments = ("--sinks", "all")
    world.feed(2)
    assert drivers.run(world.root, *arguments).ending is Ending.DONE
    manifest = take(str(world.checkpoint), str(world.root / "backups"))
    world.feed(4)
    assert drivers.run(world.root, *arguments).ending is Ending.DONE
    moved = World(world.root / "moved")
    moved.root.mkdir()
    for target in world.targets:
        (moved.root / target.name).symlink_to(target)
    if lost:
        shutil.rmtree(world.checkpoint)
    restore = ["restore", str(world.root / "backups" / manifest.name), str(moved.checkpoint)]
    assert main([*restore, "--lost-original"] if lost else restore) == 0
    world.feed(5)
    there = (*arguments, "--at", f"file:{moved.root}")
    killed = drivers.run(world.root, *there, points="before-log=kill")  # of epoch 4, which is in the folders
    assert killed.ending is Ending.KILLED, killed.output
    last = drivers.run(world.root, *there)

    assert manifest.epoch == 1
    assert last.ending is Ending.DONE, last.output
    check_at_the_end(moved, files=5)
