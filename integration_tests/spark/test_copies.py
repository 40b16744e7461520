"""Copies of a checkpoint, streams that were replaced, targets that went back: one stream writes, the others say so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from epochal import DeltaSink, EpochalError, EpochQuery, EpochWriter, Refused, Rewound, RollingFileSink, TwoJournals
from epochal.cli import main
from epochal.spark_plugins.moving.taking import take
from integration_tests.spark.checks import check_at_the_end, visible_rows
from integration_tests.spark.children import Child, Children
from integration_tests.spark.driver import Ending, sinks_of
from integration_tests.spark.queries import archive, run, start, stream, to_checkpoint, tree
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def both(world: World) -> list[Any]:
    return [archive(world), DeltaSink(str(world.table))]


@dataclass(frozen=True, slots=True)
class Copied(World):
    """Another checkpoint on the same source and targets."""

    original: World

    @property
    def source(self) -> Path:
        return self.original.source


def copied(world: World) -> World:
    """A copy of the world's checkpoint."""
    copy = linked(world, "copy")
    shutil.copytree(world.checkpoint, copy.checkpoint)
    return copy


def linked(world: World, name: str) -> Copied:
    """A place for another checkpoint on the world's source and targets."""
    other = Copied(world.root / name, world)
    other.root.mkdir()
    for path in (world.first, world.second, world.table):
        if path.exists():
            (other.root / path.name).symlink_to(path)
    return other


def stalled_in_its_second_epoch(drivers: Children, world: World) -> Child:
    """A driver in a process of its own, which waits until the gate is gone."""
    gate = world.root / "gate"
    stalled = drivers.start(world.root, "--sinks", "all", points=f"before-prepared=pause:{gate}@2")
    stalled.wait_for(gate)
    return stalled


def running(spark: SparkSession, world: World, *sinks: Any, **options: Any) -> EpochQuery:
    query = start(spark, world, EpochWriter(*sinks or both(world), **options), processingTime="0 seconds")
    query.processAllAvailable()
    return query


def refused(
    spark: SparkSession, world: World, sinks: Sequence[Any] = (), kind: type[EpochalError] = TwoJournals
) -> dict[str, str]:
    """See a start refused, and nothing written. Returns the choices that it names."""
    before = tree(world.first.resolve())
    with pytest.raises(kind, match="Nothing was written") as refusal:
        run(spark, world, *sinks or both(world))

    assert tree(world.first.resolve()) == before
    return dict(re.findall(r"(adopt|new)='([^']+)'", str(refusal.value)))


def test_a_copy_of_a_checkpoint_is_refused_once_the_original_has_run_since(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, *both(world))
    copy = copied(world)
    world.feed(4)
    run(spark, world, *both(world))

    choices = refused(spark, copy)
    assert set(choices) == {"adopt", "new"}
    assert visible_rows(world.first) == visible_rows(world.table) == all_rows(4)


def test_a_copy_beside_an_original_that_is_in_mid_epoch_is_refused_and_the_original_goes_on(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    world.feed(2)
    stalled = stalled_in_its_second_epoch(drivers, world)
    copy = copied(world)
    refused(spark, copy, sinks_of(copy, "all"))
    (world.root / "gate").unlink()
    original = stalled.wait()

    assert original.ending is Ending.DONE, original.output
    check_at_the_end(world, files=2)


def test_a_copy_that_takes_over_stops_the_original_and_every_row_is_there_once(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    world.feed(3)
    stalled = stalled_in_its_second_epoch(drivers, world)
    copy = copied(world)
    choices = refused(spark, copy, sinks_of(copy, "all"))
    run(spark, copy, *sinks_of(copy, "all"), adopt=choices["adopt"])
    (world.root / "gate").unlink()
    original = stalled.wait()
    again = refused(spark, world, sinks_of(world, "all"))
    world.feed(4)
    run(spark, copy, *sinks_of(copy, "all"))

    assert original.ending is Ending.FAILED, original.output
    assert "TwoJournals" in original.output
    assert "adopt" in again  # either may go on, but never both
    assert [visible_rows(target) for target in world.targets] == [all_rows(4)] * 3


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("before-prepared", 2),
        pytest.param("after-prepared", 2, marks=pytest.mark.matrix),
        pytest.param("after-stage", 4, marks=pytest.mark.matrix),  # the first of three sinks, in the second epoch
    ],
)
def test_a_driver_that_stalls_while_its_stream_is_restored_elsewhere_shows_nothing_when_it_wakes_up(
    spark: SparkSession, drivers: Children, world: World, point: str, hit: int
) -> None:
    world.feed(3)
    gate = world.root / "gate"
    stalled = drivers.start(world.root, "--sinks", "all", points=f"{point}=pause:{gate}@{hit}")
    stalled.wait_for(gate)
    manifest = take(str(world.checkpoint), str(world.root / "backups"))
    moved = linked(world, "moved")
    savepoint = str(world.root / "backups" / manifest.name)
    assert main(["restore", savepoint, str(moved.checkpoint), "--wait", "1"]) == 0
    world.feed(4)
    run(spark, moved, *sinks_of(moved, "all"))
    gate.unlink()
    original = stalled.wait()

    assert manifest.epoch == 0
    assert original.ending is Ending.FENCED_OUT, original.output
    assert [visible_rows(target) for target in world.targets] == [all_rows(4)] * 3


def test_gc_does_nothing_on_a_copy(spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.feed(1)
    run(spark, world)
    copy = copied(world)
    world.feed(2)
    run(spark, world)
    before = tree(world.first)

    code = main(["gc", str(copy.checkpoint), "--fence", "--yes"])

    assert code != 0
    assert "and this journal is in" in capsys.readouterr().err
    assert tree(world.first) == before
    run(spark, world)


def test_adopt_stops_a_stream_that_runs(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = running(spark, world)
    other = World(world.root / "other")
    other.feed(1)
    for path in (world.first, world.table):
        (other.root / path.name).symlink_to(path)
    with pytest.raises(Refused) as refusal:
        run(spark, other, *both(other))
    choices = dict(re.findall(r"(adopt|new)='([^']+)'", str(refusal.value)))
    run(spark, other, *both(other), adopt=choices["adopt"])
    world.feed(2)

    with pytest.raises(TwoJournals, match="has taken this stream's place"):
        query.awaitTermination()
    assert visible_rows(world.first) == visible_rows(world.table) == all_rows(1) + all_rows(1)


def test_a_start_that_wrote_nothing_binds_nobody(spark: SparkSession, world: World) -> None:
    world.feed(1)
    broken = stream(spark, world).withColumn("word", f.raise_error(f.lit("no word")))
    with pytest.raises(StreamingQueryException, match="no word"):
        EpochWriter(archive(world)).start(to_checkpoint(broken, world)).awaitTermination()
    assert list((world.first / "_epochal" / "lineages").iterdir())
    shutil.rmtree(world.checkpoint)

    run(spark, world)

    assert visible_rows(world.first) == all_rows(1)


def test_a_target_whose_notes_are_wiped_while_the_stream_runs_gets_no_more_epochs(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    query = running(spark, world, archive(world))
    shutil.rmtree(world.first / "_epochal")
    world.feed(2)

    with pytest.raises(Rewound, match=r"Restore it|Put the target back"):
        query.awaitTermination()
    assert visible_rows(world.first) == all_rows(1)


def test_a_table_that_goes_back_while_the_stream_runs_gets_no_more_epochs(spark: SparkSession, world: World) -> None:
    world.feed(1)
    query = running(spark, world, DeltaSink(str(world.table)))
    older = world.root / "older"
    shutil.copytree(world.table / "_delta_log", older)
    world.feed(2)
    query.processAllAvailable()
    shutil.rmtree(world.table / "_delta_log")
    shutil.copytree(older, world.table / "_delta_log")
    world.feed(3)

    with pytest.raises(Rewound, match=r"epoch 1 was written to .* and is not there any more"):
        query.awaitTermination()
    assert visible_rows(world.table) == all_rows(1)


def test_a_sink_that_was_left_out_for_a_while_is_asked_about(spark: SparkSession, world: World) -> None:
    world.feed(1)
    run(spark, world, *both(world))
    world.feed(2)
    run(spark, world, DeltaSink(str(world.table)))
    world.feed(3)
    choices = refused(spark, world, kind=Rewound)
    run(spark, world, *both(world), adopt=choices["adopt"])
    world.feed(4)
    run(spark, world, *both(world))

    assert set(choices) == {"adopt"}
    assert visible_rows(world.first) == all_rows(4) - (all_rows(2) - all_rows(1))
    assert visible_rows(world.table) == all_rows(4)


@pytest.mark.parametrize("second", ["files", "delta"])
def test_two_sinks_on_one_folder_are_refused_however_it_is_spelled(
    spark: SparkSession, world: World, second: str
) -> None:
    world.feed(1)
    world.first.mkdir()
    link = world.root / "link"
    link.symlink_to(world.first)
    other: Any = RollingFileSink(str(link), name="b") if second == "files" else DeltaSink(str(link), name="b")

    with pytest.raises(Refused, match="both write to"):
        EpochWriter(RollingFileSink(str(world.first), name="a"), other).start(
            stream(spark, world).writeStream.option("checkpointLocation", str(world.checkpoint))
        )
    assert not list(Path(world.first).rglob("*"))
