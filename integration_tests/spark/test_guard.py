"""What would lose or double rows is refused, with the choices spelled out; each choice does what it says."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from epochal import (
    DeltaSink,
    EpochalError,
    EpochWriter,
    ForeignTarget,
    JournalLost,
    OffsetsChanged,
    Refused,
    Rewound,
    RollingFileSink,
)
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark.checks import check_at_the_end, leftovers, visible_rows
from integration_tests.spark.queries import archive, run, start, stream, to_checkpoint, tree
from integration_tests.spark.world import BIRTH, World, all_rows, put_source_file, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def refused(spark: SparkSession, world: World, kind: type[EpochalError]) -> dict[str, str]:
    """See a start refused and nothing written. Returns the choices that the refusal names."""
    before = tree(world.first)
    with pytest.raises(kind, match="Nothing was written") as refusal:
        start(spark, world, EpochWriter(archive(world))).awaitTermination()

    assert tree(world.first) == before
    assert spark.streams.active == []
    return dict(re.findall(r"(adopt|new)='([^']+)'", str(refusal.value)))


def with_new_checkpoint(spark: SparkSession, world: World) -> World:
    """Two epochs in the target, and the checkpoint gone."""
    world.feed(2)
    run(spark, world)
    shutil.move(world.checkpoint, world.root / "old-checkpoint")
    return world


def rewound(spark: SparkSession, world: World) -> World:
    """Four epochs in the target; checkpoint and journal as they were after two."""
    world.feed(2)
    run(spark, world)
    shutil.copytree(world.checkpoint, world.root / "copy")
    world.feed(4)
    run(spark, world)
    shutil.rmtree(world.checkpoint)
    shutil.move(world.root / "copy", world.checkpoint)
    return world


def test_a_new_checkpoint_on_an_old_target_is_refused(spark: SparkSession, world: World) -> None:
    choices = refused(spark, with_new_checkpoint(spark, world), ForeignTarget)

    assert set(choices) == {"adopt", "new"}
    assert visible_rows(world.first) == all_rows(2)


def test_a_new_checkpoint_on_old_targets_is_refused_before_spark_starts_with_all_answers(
    spark: SparkSession, world: World
) -> None:
    with_new_checkpoint(spark, world)
    world.feed(3)
    run(spark, world, RollingFileSink(str(world.second)))
    shutil.rmtree(world.checkpoint)
    before = [tree(world.first), tree(world.second)]
    sinks = [archive(world), RollingFileSink(str(world.second), name="second")]
    with pytest.raises(ForeignTarget, match="refused for 2 reasons") as refusal:
        start(spark, world, EpochWriter(*sinks))
    answers = [token for option, token in refusal.value.offers if option == "adopt"]

    assert not world.checkpoint.exists(), "Spark was not started"
    assert [tree(world.first), tree(world.second)] == before
    assert f"adopt={answers!r}" in str(refusal.value)
    assert refusal.value.__cause__ is None
    run(spark, world, *sinks, adopt=answers)
    assert visible_rows(world.second) == all_rows(3) + all_rows(3)


def test_so_is_one_whose_place_follows_from_the_name_of_the_query(spark: SparkSession, world: World) -> None:
    with_new_checkpoint(spark, world)
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(world.root / "all"))
    try:
        with pytest.raises(ForeignTarget):
            EpochWriter(archive(world)).start(stream(spark, world).writeStream.queryName("orders"))
    finally:
        spark.conf.unset(setting)

    assert not (world.root / "all").exists()


@pytest.mark.parametrize("place", ["checkpoint", "checkpoint/target"])
def test_a_target_in_the_checkpoint_is_refused(spark: SparkSession, world: World, place: str) -> None:
    world.feed(1)
    writer = EpochWriter(RollingFileSink(str(world.root / place)), DeltaSink(str(world.root / place)))

    with pytest.raises(
        Refused, match=r"refused for \d reasons:\n  - sink 'files': its target .* is the query's checkpoint"
    ):
        start(spark, world, writer)
    assert not world.checkpoint.exists()
    query = to_checkpoint(stream(spark, world), world).foreachBatch(writer).start()
    with pytest.raises(StreamingQueryException, match="is the query's checkpoint, or is inside it"):
        query.awaitTermination()


def test_new_lets_both_streams_write(spark: SparkSession, world: World) -> None:
    choices = refused(spark, with_new_checkpoint(spark, world), ForeignTarget)
    run(spark, world, new=choices["new"])
    both = visible_rows(world.first)
    shutil.move(world.checkpoint, world.root / "newer-checkpoint")
    shutil.move(world.root / "old-checkpoint", world.checkpoint)
    world.feed(3)
    run(spark, world)

    assert both == all_rows(2) + all_rows(2)
    assert visible_rows(world.first) == all_rows(2) + all_rows(3)


def test_adopt_takes_the_others_place_and_the_other_can_write_no_more(spark: SparkSession, world: World) -> None:
    choices = refused(spark, with_new_checkpoint(spark, world), ForeignTarget)
    run(spark, world, adopt=choices["adopt"])
    both = visible_rows(world.first)
    run(spark, world)  # the choice is remembered
    shutil.move(world.checkpoint, world.root / "newer-checkpoint")
    shutil.move(world.root / "old-checkpoint", world.checkpoint)
    world.feed(3)
    choices = refused(spark, world, ForeignTarget)

    assert both == visible_rows(world.first) == all_rows(2) + all_rows(2)
    assert set(choices) == {"new"}


def test_a_choice_made_for_another_state_accepts_nothing(spark: SparkSession, world: World) -> None:
    choices = refused(spark, with_new_checkpoint(spark, world), ForeignTarget)
    stale = choices["new"].replace("@1", "@0")

    with pytest.raises(ForeignTarget):
        run(spark, world, new=stale)
    assert visible_rows(world.first) == all_rows(2)


def test_a_rewound_checkpoint_is_refused(spark: SparkSession, world: World) -> None:
    choices = refused(spark, rewound(spark, world), Rewound)

    assert set(choices) == {"adopt", "new"}
    assert visible_rows(world.first) == all_rows(4)


def test_adopt_skips_the_epochs_that_the_rewound_checkpoint_brings_back(spark: SparkSession, world: World) -> None:
    choices = refused(spark, rewound(spark, world), Rewound)
    world.feed(5)
    run(spark, world, adopt=choices["adopt"])

    check_at_the_end(world, files=5)


def test_new_writes_the_epochs_that_the_rewound_checkpoint_brings_back(spark: SparkSession, world: World) -> None:
    choices = refused(spark, rewound(spark, world), Rewound)
    world.feed(5)
    run(spark, world, new=choices["new"])

    again = all_rows(5) - all_rows(2)
    assert visible_rows(world.first) == all_rows(4) + again
    assert leftovers(world.first) == []


def test_a_checkpoint_rewound_behind_its_journal_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(3)
    run(spark, world)
    for name in ("offsets/2", "commits/2", "offsets/.2.crc", "commits/.2.crc", "commits/1", "commits/.1.crc"):
        (world.checkpoint / name).unlink()
    choices = refused(spark, world, Rewound)
    run(spark, world, adopt=choices["adopt"])

    check_at_the_end(world, files=3)


def test_an_epoch_that_comes_back_with_other_offsets_is_refused(spark: SparkSession, world: World) -> None:
    choices = refused(spark, rewound(spark, world), Rewound)
    _forget_plans(world, since=2)  # a refusal may come before or after Spark has planned epoch 2
    for number in (2, 3):
        _plan(world, number)  # both: epoch 2 will hold two files

    with pytest.raises(OffsetsChanged, match="holds epoch 2 from other source offsets"):
        run(spark, world, adopt=choices["adopt"])
    assert visible_rows(world.first) == all_rows(4)


def _slip_in(world: World, number: int, *, before: int) -> None:
    """A file that comes late, and that Spark takes before another that it read in the meantime."""
    put_source_file(world.source, number, rows_of(number))
    os.utime(world.source / f"{number:05d}.parquet", (BIRTH + before - 0.5, BIRTH + before - 0.5))


def test_an_epoch_that_comes_back_from_other_files_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(2)
    sinks = [archive(world), DeltaSink(str(world.table), name="lake")]
    run(spark, world, *sinks)
    shutil.copytree(world.checkpoint, world.root / "copy")
    world.feed(4)
    run(spark, world, *sinks)
    shutil.rmtree(world.checkpoint)
    shutil.move(world.root / "copy", world.checkpoint)
    _slip_in(world, 4, before=2)
    with pytest.raises(Rewound, match="as long as they are replayed with the same offsets and files") as refusal:
        run(spark, world, *sinks)
    choices = dict(re.findall(r"(adopt|new)='([^']+)'", str(refusal.value)))

    with pytest.raises(OffsetsChanged, match="holds epoch 2 from other source offsets, or from other files"):
        run(spark, world, *sinks, adopt=choices["adopt"])
    assert visible_rows(world.first) == visible_rows(world.table) == all_rows(4)


def test_an_eager_epoch_that_comes_back_from_other_files_is_refused(spark: SparkSession, world: World) -> None:
    eager: dict[str, Any] = {"commit": "eager", "journal": str(world.root / "journal")}
    world.feed(2)
    run(spark, world, **eager)
    shutil.copytree(world.checkpoint, world.root / "copy")
    world.feed(3)
    run(spark, world, **eager)
    shutil.rmtree(world.checkpoint)
    shutil.move(world.root / "copy", world.checkpoint)
    _slip_in(world, 3, before=2)

    with pytest.raises(OffsetsChanged, match="epoch 2 was written before, from other source offsets or other"):
        run(spark, world, **eager)
    assert visible_rows(world.first) == all_rows(3)


def _forget_plans(world: World, *, since: int) -> None:
    for folder in (world.checkpoint / "offsets", world.checkpoint / "sources" / "0"):
        for path in folder.iterdir():
            number = path.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= since:
                path.unlink()


def _plan(world: World, number: int) -> None:
    """Put a file into the source's log, as a driver leaves it that dies before it writes offsets/N."""
    source = world.source / f"{number:05d}.parquet"
    stamp = int(source.stat().st_mtime * 1000)
    entry = f'v1\n{{"path":"file://{source}","timestamp":{stamp},"batchId":{number}}}'
    (world.checkpoint / "sources" / "0" / str(number)).write_text(entry)


def test_a_journal_that_was_deleted_is_missed(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    shutil.rmtree(world.journal)
    choices = refused(spark, world, JournalLost)
    world.feed(3)
    run(spark, world, adopt=choices["adopt"])

    check_at_the_end(world, files=3)


def test_a_journal_that_lost_an_epoch_is_an_error_that_names_it(spark: SparkSession, world: World) -> None:
    world.feed(3)
    run(spark, world)
    for record in world.journal.glob("e000000000002.*"):
        record.unlink()

    with pytest.raises(JournalLost, match="epoch 2 was checkpointed by Spark, but the journal has no record"):
        run(spark, world)


def test_a_target_that_was_emptied_is_missed(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    shutil.rmtree(world.first)
    world.first.mkdir()

    with pytest.raises(Rewound, match="emptied, moved or restored"):
        run(spark, world)
    assert list(world.first.iterdir()) == []


def test_a_target_of_sparks_own_file_sink_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    stream = spark.readStream.schema("id long, file long, kind string, word string").parquet(str(world.source))
    sparks_own = stream.writeStream.option("checkpointLocation", str(world.root / "other")).trigger(availableNow=True)
    sparks_own.format("parquet").start(str(world.first)).awaitTermination()
    before = tree(world.first)

    with pytest.raises(Refused, match="written by Spark's own file sink"):
        run(spark, world)
    assert tree(world.first) == before


def test_a_query_that_ran_without_epochal_can_be_taken_over(spark: SparkSession, world: World) -> None:
    world.feed(2)
    stream = spark.readStream.schema("id long, file long, kind string, word string").option("maxFilesPerTrigger", 1)
    plain = stream.parquet(str(world.source)).writeStream.option("checkpointLocation", str(world.checkpoint))
    plain.format("noop").trigger(availableNow=True).start().awaitTermination()
    world.feed(4)
    run(spark, world)

    assert visible_rows(world.first) == all_rows(4) - all_rows(2)
    assert Journal(LocalFiles(), str(world.journal)).read().base == 2


def test_a_journal_of_another_checkpoint_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    journal = str(world.root / "journal")
    run(spark, world, journal=journal)
    shutil.rmtree(world.checkpoint)

    with pytest.raises(Refused, match="is the journal of query"):
        run(spark, world, RollingFileSink(str(world.second)), journal=journal)


def test_a_second_sink_added_later_gets_the_epochs_from_then_on(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    world.feed(4)
    run(spark, world, archive(world), RollingFileSink(str(world.second), name="second"))

    assert visible_rows(world.first) == all_rows(4)
    assert visible_rows(world.second) == Counter(all_rows(4)) - all_rows(2)
