"""Parts that stay open over epochs: what appears when, in every format, and what a restart may change."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import epochal.cli
from epochal import EpochWriter, Refused, Rolling, published
from integration_tests.spark.checks import check_at_the_end, rows_in, visible_files, visible_rows
from integration_tests.spark.queries import archive, run, start, stream, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 7
PART = Rolling(max_rows=3 * ROWS)  # three epochs a part: of seven, two appear and one epoch stays open
HOUR = Rolling(max_age="1 h")  # nothing appears in a test's time


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command answers."""
    capsys.readouterr()
    assert epochal.cli.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("format_", ["json", "csv", "parquet", "orc", "avro"])
def test_a_part_appears_when_it_is_full_and_holds_the_rows_of_its_epochs(
    spark: SparkSession, world: World, format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"header": "true"} if format_ == "csv" else {}
    world.feed(EPOCHS)
    run(spark, world, archive(world, format=format_, options=options, rolling=PART))
    shown = visible_files(world.first)
    open_parts = ask(capsys, "status", str(world.checkpoint))["open"]

    assert [len(rows_in(file)) for file in shown] == [3 * ROWS, 3 * ROWS]
    assert visible_rows(world.first) == all_rows(6)
    assert [(part["bucket"], part["pieces"]) for part in open_parts] == [("", 1)]
    ask(capsys, "roll", str(world.checkpoint))
    check_at_the_end(world, files=EPOCHS)


def test_text_and_gzip_are_joined_to_files_that_any_reader_takes(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.feed(3)
    frame = stream(spark, world).selectExpr("concat(id, '-', word) AS line")
    sink = archive(world, format="text", compression="gzip", rolling=HOUR)
    EpochWriter(sink).start(to_checkpoint(frame, world)).awaitTermination()
    ask(capsys, "roll", str(world.checkpoint))
    (file,) = visible_files(world.first)

    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    assert sorted(lines) == sorted(f"{row[0]}-{row[3]}" for row in all_rows(3))


def test_a_merged_part_has_one_row_group(spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.feed(5)
    run(spark, world, archive(world, rolling=HOUR))
    ask(capsys, "roll", str(world.checkpoint))
    (file,) = visible_files(world.first)

    assert pq.ParquetFile(file).num_row_groups == 1


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_large_pieces_stay_row_groups_of_the_part_they_become(
    spark: SparkSession, world: World, format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.feed(5)
    run(spark, world, archive(world, format=format_, rolling=Rolling(max_age="1 h", merge_below=1)))
    ask(capsys, "roll", str(world.checkpoint))  # which knows nothing of merge_below, and merges
    world.feed(9)
    run(spark, world, archive(world, format=format_, rolling=Rolling(max_rows=2 * ROWS, merge_below=1)))
    merged, *copied = visible_files(world.first)

    assert _groups_in(merged) == 1
    assert [_groups_in(file) for file in copied] == [2, 2]
    assert [len(rows_in(file)) for file in copied] == [2 * ROWS, 2 * ROWS]
    check_at_the_end(world, files=9)


def _groups_in(file: Path) -> int:
    whole = pq.ParquetFile(file).num_row_groups if file.suffix == ".parquet" else orc.ORCFile(file).nstripes
    return int(whole)


def test_the_manifest_lists_what_epochs_and_rolls_published(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.feed(EPOCHS)
    run(spark, world, archive(world, format="json", rolling=PART))
    ask(capsys, "roll", str(world.checkpoint))

    entries = published(str(world.first))
    assert [(entry.epoch, entry.roll, len(entry.files)) for entry in entries if entry.files] == [
        (2, 0, 1),
        (5, 0, 1),
        (6, 1, 1),
    ]
    assert sum(entry.rows for entry in entries) == EPOCHS * ROWS


def test_an_idle_part_appears_without_new_rows(spark: SparkSession, world: World) -> None:
    world.feed(2)
    writer = EpochWriter(archive(world, bucket_by=["kind"], rolling=Rolling(inactivity="1 s")))
    query = start(spark, world, writer, processingTime="0 seconds")
    try:
        wait_until(lambda: visible_rows(world.first) == all_rows(2), "the idle parts to appear")
        world.feed(3)
        wait_until(lambda: visible_rows(world.first) == all_rows(3), "the next to appear too")
    finally:
        query.stop()

    check_at_the_end(world, files=3)


def test_parts_go_on_over_restarts_with_any_number_of_partitions(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, partitions in enumerate((1, 4, 2), 1):
        world.feed(2 * count)
        frame = stream(spark, world).repartition(partitions)
        writer = EpochWriter(archive(world, bucket_by=["word"], rolling=HOUR))
        writer.start(to_checkpoint(frame, world)).awaitTermination()

    assert visible_files(world.first) == []
    ask(capsys, "roll", str(world.checkpoint))
    check_at_the_end(world, files=6)
    assert len(visible_files(world.first)) == 2  # one a bucket


def test_what_is_open_appears_with_the_first_epoch_after_the_policy_is_taken_away(
    spark: SparkSession, world: World
) -> None:
    world.feed(3)
    run(spark, world, archive(world, rolling=HOUR))
    before = visible_files(world.first)
    world.feed(4)
    run(spark, world, archive(world))

    assert before == []
    check_at_the_end(world, files=4)


def test_a_part_closes_when_the_columns_change(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.feed(2)
    run(spark, world, archive(world, format="csv", options={"header": "true"}, rolling=HOUR))
    world.feed(3)
    wider = stream(spark, world).selectExpr("*", "id * 2 AS twice")
    sink = archive(world, format="csv", options={"header": "true"}, rolling=HOUR, changed_columns="allow")
    EpochWriter(sink).start(to_checkpoint(wider, world)).awaitTermination()
    ask(capsys, "roll", str(world.checkpoint))

    headers = [file.read_text().splitlines()[0] for file in visible_files(world.first)]
    assert headers == ["id,file,kind,word", "id,file,kind,word,twice"]
    assert visible_rows(world.first) == all_rows(3)


def test_another_path_is_refused_while_parts_are_open(spark: SparkSession, world: World) -> None:
    world.feed(1)
    run(spark, world, archive(world, rolling=HOUR))
    world.feed(2)

    with pytest.raises(Refused, match="epochal roll CHECKPOINT"):
        run(spark, world, epochal.RollingFileSink(str(world.second), rolling=HOUR))


def test_a_piece_that_another_program_removed_stops_the_query_before_anything_is_built_on_it(
    spark: SparkSession, world: World
) -> None:
    world.feed(2)
    run(spark, world, archive(world, rolling=PART))
    piece = next((world.first / "_epochal" / "open").rglob("part-*"))
    kept = piece.read_bytes()
    piece.unlink()
    world.feed(3)
    with pytest.raises(Refused, match="is missing instead of"):
        run(spark, world, archive(world, rolling=PART))
    piece.write_bytes(kept)
    for checksum in piece.parent.glob(".*.crc"):
        checksum.unlink()
    run(spark, world, archive(world, rolling=PART))

    check_at_the_end(world, files=3)


def test_open_parts_that_the_journal_has_lost_are_not_forgotten(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, archive(world, rolling=HOUR))
    (lineage,) = (path.name for path in (world.first / "_epochal" / "open").iterdir())
    shutil.rmtree(world.journal)
    world.feed(3)

    with pytest.raises(Refused, match="parts that the journal does not know"):
        run(spark, world, archive(world, rolling=HOUR), adopt=f"{lineage[:8]}@1")


def test_the_place_of_a_stream_with_open_parts_cannot_be_taken(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, archive(world, rolling=HOUR))
    (lineage,) = (path.name for path in (world.first / "_epochal" / "open").iterdir())
    shutil.rmtree(world.checkpoint)

    with pytest.raises(Refused, match="rows would never be published"):
        run(spark, world, archive(world, rolling=HOUR), adopt=f"{lineage[:8]}@1")
