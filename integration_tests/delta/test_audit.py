"""An audit of a table proves what is there, also after others have worked on it, and finds what was changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from epochal import DeltaSink, EpochWriter
from integration_tests.delta.tables import make
from integration_tests.spark.audits import NESTED, PLAIN, audited, feed, is_exact, sink
from integration_tests.spark.queries import run, to_checkpoint
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 3


def table(world: World, **options: Any) -> DeltaSink:
    return DeltaSink(str(world.table), name="files", digest=True, **options)


def write(spark: SparkSession, world: World, *sinks: Any, mode: str = "append") -> None:
    schema = spark.read.option("mergeSchema", "true").parquet(str(world.source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(world.source))
    EpochWriter(*sinks).start(to_checkpoint(frame, world, mode)).awaitTermination()


@pytest.fixture
def filled(spark: SparkSession, world: World) -> World:
    """Three epochs in a table that is partitioned by values of which one is empty."""
    world.feed(EPOCHS)
    run(spark, world, table(world, partition_by=["kind"]))
    return world


def test_nested_values_are_exact_to_the_letter(spark: SparkSession, world: World) -> None:
    for number in range(2):
        feed(spark, world, NESTED, number)
    write(spark, world, table(world))

    assert is_exact(audited(world.checkpoint), 16)


def test_rows_that_deltas_own_code_has_written_are_exact_but_for_what_it_fills_in(
    spark: SparkSession, world: World
) -> None:
    columns = "id BIGINT, file BIGINT, kind CHAR(9), word STRING NOT NULL, twice BIGINT GENERATED ALWAYS AS (2 * id)"
    make(spark, world.table, columns)
    world.feed(2)
    run(spark, world, table(world))

    assert is_exact(audited(world.checkpoint), 12)


def test_partitions_and_a_restart_with_other_parallelism_are_no_difference(spark: SparkSession, filled: World) -> None:
    filled.feed(EPOCHS + 1)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        run(spark, filled, table(filled))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))

    assert is_exact(audited(filled.checkpoint), 24)


def test_columns_that_were_added_are_no_difference(spark: SparkSession, world: World) -> None:
    feed(spark, world, PLAIN, 0)
    write(spark, world, table(world))
    feed(spark, world, f"SELECT *, 'late' AS more FROM ({PLAIN})", 1)
    write(spark, world, table(world, evolve="add_columns"))

    assert is_exact(audited(world.checkpoint), 16)


@pytest.mark.parametrize("vacuumed", [pytest.param(False, marks=pytest.mark.matrix), True], ids=["kept", "vacuumed"])
def test_optimize_is_no_difference(spark: SparkSession, filled: World, vacuumed: bool) -> None:
    spark.sql(f"OPTIMIZE delta.`{filled.table}`")
    if vacuumed:
        DeltaTable(filled.table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    answer = audited(filled.checkpoint)

    assert is_exact(answer, 18), answer


def test_rows_that_somebody_deleted_were_exact_before(spark: SparkSession, filled: World) -> None:
    spark.sql(f"DELETE FROM delta.`{filled.table}` WHERE id = 7")

    answer = audited(filled.checkpoint)

    assert is_exact(answer, 18), answer
    assert any("(DELETE)" in note for note in sink(answer)["notes"]), answer


def test_what_was_deleted_and_vacuumed_is_not_provable(spark: SparkSession, filled: World) -> None:
    spark.sql(f"DELETE FROM delta.`{filled.table}` WHERE id = 7")
    DeltaTable(filled.table).vacuum(0, dry_run=False, enforce_retention_duration=False)

    answer = audited(filled.checkpoint)

    assert answer["verdict"] == "not provable", answer
    assert "rewritten since" in sink(answer)["not_provable"][0]


def test_an_epochs_files_appended_once_more_are_found(spark: SparkSession, filled: World) -> None:
    names = [file for file in DeltaTable(filled.table).file_uris() if "part-000000000001-" in file]
    spark.read.parquet(*names).write.format("delta").mode("append").save(str(filled.table))

    answer = audited(filled.checkpoint)

    assert answer["verdict"] == "differs"
    (difference,) = sink(answer)["differences"]
    repeated = "(WRITE) appended 6 rows that no stream of epochal wrote, and each equals a row of this stream"
    assert repeated in difference["what"]


def test_rows_of_others_are_told_and_no_difference(spark: SparkSession, filled: World) -> None:
    others = spark.createDataFrame([(999, 999, "x", "y")], "id long, file long, kind string, word string")
    others.write.format("delta").mode("append").save(str(filled.table))

    answer = audited(filled.checkpoint)

    assert answer["verdict"] == "exact"
    assert "other programs write here" in sink(answer)["notes"][0]


def test_a_file_whose_rows_were_swapped_is_found(spark: SparkSession, world: World) -> None:
    world.feed(EPOCHS)
    run(spark, world, table(world))
    part = min(world.table.glob("part-000000000001-*"))
    swap(part)

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "differs"
    assert [difference["epoch"] for difference in sink(answer)["differences"]] == [1]


def swap(part: Path) -> None:
    """Other rows, as many, in a file of the same length."""
    rows = pq.read_table(part)
    data = part.read_bytes()
    for old, new in ((b"one", b"uno"), (b"two", b"due")):
        data = data.replace(old, new)
    part.write_bytes(data)
    if pq.read_table(part).column("word").to_pylist() == rows.column("word").to_pylist():  # compressed: nothing was hit
        raise AssertionError("the file is as it was")


def test_a_file_that_is_gone_is_named(filled: World) -> None:
    part = min(filled.table.glob("part-000000000002-*"))
    part.unlink()

    for fast in (True, False):
        answer = audited(filled.checkpoint, fast=fast)
        assert answer["verdict"] == "differs"
        assert part.name in {difference["file"] for difference in sink(answer)["differences"]}


def test_an_epoch_that_is_in_the_log_twice_is_found_without_reading_rows(filled: World) -> None:
    log = filled.table / "_delta_log"
    entries = sorted(log.glob("*.json"))
    shutil.copy(entries[-1], log / f"{len(entries):020d}.json")

    answer = audited(filled.checkpoint, fast=True)

    assert answer["verdict"] == "differs"
    assert "is in the table's log 2 times" in sink(answer)["differences"][0]["what"]


def test_a_table_that_was_restored_from_an_older_copy_lacks_an_epoch(filled: World) -> None:
    entries = sorted((filled.table / "_delta_log").glob("*.json"))
    entries[-1].unlink()

    answer = audited(filled.checkpoint, fast=True)

    assert answer["verdict"] == "differs"
    assert {difference["epoch"] for difference in sink(answer)["differences"]} == {2}


def test_epochs_that_a_restore_took_out_of_the_table_are_named(spark: SparkSession, filled: World) -> None:
    before = DeltaTable(filled.table).version() - 2
    spark.sql(f"RESTORE TABLE delta.`{filled.table}` TO VERSION AS OF {before}")

    for fast in (True, False):
        answer = audited(filled.checkpoint, fast=fast)
        assert answer["verdict"] == "differs"
        told = [d for d in sink(answer)["differences"] if "was taken out of the table by version" in d["what"]]
        assert {difference["epoch"] for difference in told} == {1, 2}

    spark.sql(f"RESTORE TABLE delta.`{filled.table}` TO VERSION AS OF {before + 2}")
    assert audited(filled.checkpoint, fast=True)["verdict"] != "differs"


def test_of_a_table_that_each_epoch_replaces_the_last_is_proven(spark: SparkSession, world: World) -> None:
    world.feed(EPOCHS)
    frame = spark.readStream.schema("id long, file long, kind string, word string").option("maxFilesPerTrigger", 1)
    counts = frame.parquet(str(world.source)).groupBy("word").count()
    EpochWriter(table(world, mode="complete")).start(to_checkpoint(counts, world, "complete")).awaitTermination()
    assert is_exact(audited(world.checkpoint), 2)

    spark.sql(f"UPDATE delta.`{world.table}` SET count = count + 1 WHERE word = 'one'")

    answer = audited(world.checkpoint)
    assert is_exact(answer, 2)
    assert "has changed the table since" in sink(answer)["notes"][0]


def test_of_upserts_only_the_log_is_proven(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, DeltaSink(str(world.table), name="files", mode="upsert", keys=["id"]))

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "not provable"
    assert sink(answer)["differences"] == []
    assert "an upsert" in sink(answer)["not_provable"][0]
