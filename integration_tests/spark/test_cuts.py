"""Every sink of a stream, read as it was after one epoch, while the stream goes on."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import epochal
from epochal import CutGone, DeltaSink, EpochWriter, NotSettled, Rolling, RollingFileSink
from epochal.sinks.files.compaction.compactor import Compactor
from epochal.sinks.files.layout import Layout
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.model import Attempt, Handle
from integration_tests.spark.checks import visible_rows
from integration_tests.spark.queries import Meddled, archive, run, start, stream, to_checkpoint
from integration_tests.spark.world import ROWS, Row, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def rows_of(frame: DataFrame) -> Counter[Row]:
    return Counter((r["id"], r["file"], r["kind"], r["word"]) for r in frame.collect())


def csv(world: World) -> RollingFileSink:
    """Text without types, with options that a reader must have too, and a column that only the folders have."""
    options = {"sep": "|", "header": "true", "nullValue": "-"}
    return RollingFileSink(
        str(world.second), format="csv", name="csv", bucket_by=["word"], drop_bucket_columns=True, options=options
    )


def test_a_store_that_is_ahead_is_read_at_the_epoch_that_all_show(spark: SparkSession, world: World) -> None:
    def fail(attempt: Attempt, handle: Handle) -> None:
        if attempt.epoch == 2:
            raise OSError("the store is away")

    world.feed(3)
    sinks: list[Any] = [DeltaSink(str(world.table)), csv(world), Meddled(archive(world, bucket_by=["kind"]), fail)]
    writer = EpochWriter(*sinks, settle_timeout=0.1)
    with pytest.raises(NotSettled):
        start(spark, world, writer).awaitTermination()
    ahead = visible_rows(world.table)
    frames = epochal.read_cut(spark, str(world.checkpoint))

    assert ahead == all_rows(3)
    assert (frames.epoch, sorted(frames), frames.left_out) == (1, ["csv", "delta", "files"], {})
    assert {name: rows_of(frame) for name, frame in frames.items()} == dict.fromkeys(frames, all_rows(2))
    assert {frame.schema.simpleString() for frame in frames.values()} == {
        "struct<id:bigint,file:bigint,kind:string,word:string>"
    }
    run(spark, world, *sinks[:2], archive(world, bucket_by=["kind"]))
    assert epochal.read_cut(spark, str(world.checkpoint)).epoch == 2
    assert rows_of(epochal.read_cut(spark, frames.cut)["delta"]) == all_rows(2), "a cut is a value"


def test_columns_are_known_before_the_first_file(spark: SparkSession, world: World) -> None:
    world.feed(1)
    sinks: list[Any] = [csv(world), archive(world), DeltaSink(str(world.table))]
    writer = EpochWriter(*sinks)
    writer.start(to_checkpoint(stream(spark, world).where("id < 0"), world)).awaitTermination()
    frames = epochal.read_cut(spark, str(world.checkpoint))

    assert frames.epoch == 0
    assert all(frame.columns == ["id", "file", "kind", "word"] for frame in frames.values())
    assert {frame.schema["id"].dataType.simpleString() for frame in frames.values()} == {"bigint"}
    assert [frame.count() for frame in frames.values()] == [0, 0, 0]


VALUES = (
    "id",
    "cast(id as int) as number",
    "date'2026-11-16' as day",
    "timestamp'2026-11-16 10:00:00.123' as at",
    "cast(id / 3 as decimal(10, 2)) as price",
    "if(id % 2 = 0, null, 'a\nb \"c\" | , <d> &') as text",
    "word",
)


def test_every_format_gives_the_same_rows_and_types(spark: SparkSession, world: World) -> None:
    formats: list[Any] = ["parquet", "orc", "avro", "json", "csv", "xml"]
    world.feed(2)
    sinks = [
        RollingFileSink(
            str(world.root / name),
            format=name,
            name=name,
            bucket_by=["day", "word"],
            drop_bucket_columns=name == "csv",
            options={"rowTag": "order"} if name == "xml" else {},
        )
        for name in formats
    ]
    frame = stream(spark, world).selectExpr(*VALUES)
    EpochWriter(*sinks).start(to_checkpoint(frame, world)).awaitTermination()
    lines = EpochWriter(RollingFileSink(str(world.first), format="text", bucket_by=["kind"]))
    text = stream(spark, world).selectExpr("word as line", "kind").where("kind <> ''")
    other = World(world.root / "other")
    lines.start(to_checkpoint(text, other)).awaitTermination()
    frames = epochal.read_cut(spark, str(world.checkpoint))
    expected = spark.read.parquet(str(world.source)).selectExpr(*VALUES)

    assert sorted(frames) == sorted(formats)
    for name, read in frames.items():
        assert read.schema.simpleString() == expected.schema.simpleString(), name
        assert Counter(map(tuple, read.collect())) == Counter(map(tuple, expected.collect())), name
    plain = epochal.read_cut(spark, str(other.checkpoint))["files"]
    assert plain.columns == ["line", "kind"]
    assert Counter(plain.collect()) == Counter(text_rows(spark, world))


def text_rows(spark: SparkSession, world: World) -> list[Any]:
    return spark.read.parquet(str(world.source)).selectExpr("word as line", "kind").where("kind <> ''").collect()


def test_rows_that_are_still_open_are_not_in_the_cut_and_are_counted(spark: SparkSession, world: World) -> None:
    world.feed(2)
    rolling = archive(world, rolling=Rolling(max_rows=1000), name="rolling")
    run(spark, world, DeltaSink(str(world.table)), rolling)
    frames = epochal.read_cut(spark, str(world.checkpoint))

    assert rows_of(frames["delta"]) == all_rows(2)
    assert (frames["rolling"].count(), frames["rolling"].columns) == (0, ["id", "file", "kind", "word"])
    sink = frames.cut.sinks["rolling"]
    assert (sink.open_rows, sink.open_parts) == (2 * ROWS, 1)
    assert "parts that are still open at the epoch are not in the cut" in sink.notes[-1]


def test_files_of_another_format_and_of_more_columns_are_read_together(spark: SparkSession, world: World) -> None:
    world.feed(1)
    run(spark, world, archive(world, format="json"))
    world.feed(2)
    wider = stream(spark, world).selectExpr("*", "cast(id as string) as name")
    EpochWriter(archive(world)).start(to_checkpoint(wider, world)).awaitTermination()
    frame = epochal.read_cut(spark, str(world.checkpoint))["files"]

    assert frame.columns == ["id", "file", "kind", "word", "name"]
    assert rows_of(frame) == all_rows(2)
    assert Counter(row["name"] is None for row in frame.collect()) == {True: ROWS, False: ROWS}


def test_what_vacuum_or_a_compaction_has_removed_is_an_error_that_says_so(spark: SparkSession, world: World) -> None:
    world.feed(1)
    table = DeltaSink(str(world.table), mode="complete")
    run(spark, world, table, archive(world, format="json"))
    old = epochal.cut(str(world.checkpoint))
    world.feed(2)
    run(spark, world, table, archive(world, format="json"))
    before = epochal.read_cut(spark, old)
    seen = [rows_of(before["delta"]), rows_of(before["files"])]
    Compactor(LocalSinkFiles(), Layout(str(world.first)), 1 << 20).run()
    with pytest.raises(CutGone, match=r"`epochal compact` has joined .* with files of later epochs, up to 1"):
        epochal.read_cut(spark, old)
    DeltaTable(world.table).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    assert seen == [all_rows(1), all_rows(1)]
    del old.sinks["files"]  # type: ignore[attr-defined]  # it is a plain dict
    with pytest.raises(CutGone, match=r"VACUUM has removed 1 of its files, such as .*part-000000000000"):
        epochal.read_cut(spark, old)
    now = epochal.read_cut(spark, str(world.checkpoint))
    assert (rows_of(now["delta"]), rows_of(now["files"])) == (all_rows(2) - all_rows(1), all_rows(2))


def test_a_stream_on_another_file_system_has_a_cut_too(spark: SparkSession, world: World, view: str) -> None:
    world.feed(1)
    sinks: list[Any] = [RollingFileSink(f"{view}/first", bucket_by=["kind"]), DeltaSink(f"{view}/table")]
    frame = stream(spark, world)
    writer = frame.writeStream.option("checkpointLocation", f"{view}/checkpoint").trigger(availableNow=True)
    EpochWriter(*sinks).start(writer).awaitTermination()
    frames = epochal.read_cut(spark, f"{view}/checkpoint")

    assert frames.epoch == 0
    assert [rows_of(frame) for frame in frames.values()] == [all_rows(1), all_rows(1)]
    assert [path.name for path in Path(world.checkpoint, "epochal-cut").glob("[0-9]*")] == ["000000000000.json"]


def test_a_target_that_another_stream_took_over_holds_the_rows_of_both(spark: SparkSession, world: World) -> None:
    world.feed(1)
    run(spark, world, archive(world), DeltaSink(str(world.table)))
    shutil.move(world.checkpoint, world.root / "old")
    with pytest.raises(epochal.ForeignTarget) as refused:
        run(spark, world, archive(world), DeltaSink(str(world.table)))
    offers: Any = dict(refused.value.offers)
    run(spark, world, archive(world), DeltaSink(str(world.table)), adopt=offers["adopt"])
    frames = epochal.read_cut(spark, str(world.checkpoint))

    assert rows_of(frames["files"]) == rows_of(frames["delta"]) == all_rows(1) + all_rows(1)
    assert frames.cut.sinks["delta"].notes != ()
