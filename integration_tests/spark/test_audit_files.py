"""An audit of files proves what is there, and finds whatever somebody has changed."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import epochal.cli
from epochal import EpochWriter, Rolling, RollingFileSink
from epochal.sinks.files.options import Format
from integration_tests.spark.audits import NESTED, PLAIN, WORDS, audited, feed, is_exact, sink
from integration_tests.spark.checks import visible_files
from integration_tests.spark.queries import archive, run, to_checkpoint
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 3
FORMATS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("parquet", NESTED, "parquet", {}),
    ("orc", NESTED, "orc", {}),
    ("json", NESTED, "json", {}),
    ("json-gzip", NESTED, "json", {"compression": "gzip", "options": {"ignoreNullFields": "false"}}),
    ("json-pretty", PLAIN, "json", {"options": {"pretty": "true", "timeZone": "Asia/Tokyo"}}),
    ("csv", PLAIN, "csv", {}),
    ("csv-header-gzip", PLAIN, "csv", {"compression": "gzip", "options": {"header": "true"}}),
    ("csv-options", PLAIN, "csv", {"options": {"header": "TRUE", "quoteAll": "true", "sep": "|", "nullValue": "-"}}),
    ("csv-of-one-column", WORDS, "csv", {}),
    ("text-bzip2", WORDS, "text", {"compression": "bzip2"}),
]
ROLLED = ("parquet", "json", "csv-header-gzip", "text-bzip2")


def write(spark: SparkSession, world: World, *sinks: Any) -> None:
    """A query over what the source has, run to its end."""
    schema = spark.read.parquet(str(world.source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(world.source))
    EpochWriter(*sinks).start(to_checkpoint(frame, world)).awaitTermination()


# Each format is published; rolled are those whose pieces are made one in different ways.
@pytest.mark.parametrize(
    ("rows", "form", "options", "rolling"),
    [
        pytest.param(
            *rest,
            rolling,
            marks=() if rolling is None or name in ROLLED else pytest.mark.matrix,
            id=f"{name}-{'rolling' if rolling else 'published'}",
        )
        for name, *rest in FORMATS
        for rolling in (None, Rolling(max_rows=10))
    ],
)
def test_every_format_is_exact_to_the_letter(
    spark: SparkSession, world: World, rows: str, form: Format, options: dict[str, Any], rolling: Rolling | None
) -> None:
    for number in range(EPOCHS):
        feed(spark, world, rows, number)
    write(spark, world, RollingFileSink(str(world.first), format=form, digest=True, rolling=rolling, **options))

    answer = audited(world.checkpoint)

    assert is_exact(answer, 8 * EPOCHS), answer
    assert sink(answer)["not_provable"] == []


def test_bucket_columns_that_are_dropped_are_no_part_of_a_row(spark: SparkSession, world: World) -> None:
    feed(spark, world, PLAIN, 0)
    write(
        spark,
        world,
        RollingFileSink(str(world.first), bucket_by=["id", "yes"], drop_bucket_columns=True, digest=True),
    )

    assert is_exact(audited(world.checkpoint), 8)


def test_other_columns_and_types_after_a_restart_are_no_difference(spark: SparkSession, world: World) -> None:
    for number, rows in enumerate(("SELECT 1 AS a", "SELECT 2 AS a, 'x' AS b", "SELECT 'three' AS a")):
        feed(spark, world, rows, number)
        schema = spark.read.parquet(str(world.source / f"{number:05d}.parquet")).schema
        frame = spark.readStream.schema(schema).parquet(str(world.source))
        files = RollingFileSink(str(world.first), digest=True, changed_columns="allow")
        EpochWriter(files).start(to_checkpoint(frame, world)).awaitTermination()

    assert is_exact(audited(world.checkpoint), 3)


def test_other_parallelism_and_formats_after_a_restart_are_no_difference(spark: SparkSession, world: World) -> None:
    forms: list[tuple[Format, int]] = [("parquet", 1), ("json", 3), ("parquet", 2), ("csv", 1)]
    for number, (form, parts) in enumerate(forms):
        feed(spark, world, PLAIN, number)
        schema = spark.read.parquet(str(world.source)).schema
        frame = spark.readStream.schema(schema).parquet(str(world.source)).repartition(parts)
        files = RollingFileSink(str(world.first), format=form, digest=True)
        EpochWriter(files).start(to_checkpoint(frame, world)).awaitTermination()

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "exact", answer
    assert sink(answer)["rows"] == {"expected": 32, "found": 32}


def test_digests_that_begin_later_prove_what_they_can(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world)
    world.feed(4)
    run(spark, world, RollingFileSink(str(world.first), digest=True))

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "exact"
    assert sink(answer)["digest"]["compared"] == "equal in 2 of 4 epochs"
    assert sink(answer)["rows"] == {"expected": 24, "found": 24}


def test_without_digests_lines_are_counted_and_more_lines_than_rows_are_no_difference(
    spark: SparkSession, world: World
) -> None:
    feed(spark, world, PLAIN, 0)
    write(spark, world, RollingFileSink(str(world.first), format="csv", options={"header": "true"}))

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "not provable"
    assert sink(answer)["differences"] == []
    assert "a row may have several" in sink(answer)["not_provable"][0]


def test_two_streams_in_one_target_are_told_apart(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, RollingFileSink(str(world.first), digest=True))
    other = World(world.root / "other")
    other.root.mkdir()
    other.feed(3)
    token = f"{audited(world.checkpoint)['lineage'][:8]}@1"
    run(spark, other, RollingFileSink(str(world.first), digest=True), new=token)

    assert is_exact(audited(world.checkpoint), 12)
    assert is_exact(audited(other.checkpoint), 18)


@pytest.fixture
def parts(spark: SparkSession, world: World) -> list[Path]:
    """What three epochs have published."""
    world.feed(EPOCHS)
    run(spark, world, RollingFileSink(str(world.first), digest=True))
    return sorted(world.first.glob("part-*.parquet"))


def doubled(part: Path) -> None:
    shutil.copy(part, part.with_name(part.name.replace("-00000-", "-00099-")))


def changed_row(part: Path) -> None:
    rewrite(part, lambda rows: [{**rows[0], "word": "zwo"}, *rows[1:]])


def one_twice_and_another_not(part: Path) -> None:
    rewrite(part, lambda rows: [rows[0], *rows[:-1]])


def truncated(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-1])


def scribbled(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[-4:] = b"XXXX"
    part.write_bytes(data)


def rewrite(part: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """The same file with other rows, and a manifest that knows its new length: only digests are left to tell."""
    table = pq.read_table(part)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), part)
    list_anew(part)


def list_anew(part: Path) -> None:
    epoch = part.name.split("-")[1]
    (manifest,) = part.parent.glob(f"_epochal/manifest/*/{epoch}.json")
    value = json.loads(manifest.read_text())
    value["files"][0]["bytes"] = part.stat().st_size
    manifest.write_text(json.dumps(value, sort_keys=True, indent=1) + "\n")


@pytest.mark.parametrize(
    ("tamper", "verdict", "said"),
    [
        (doubled, "differs", "no epoch published it"),
        (Path.unlink, "not provable", "is missing"),
        (truncated, "differs", "bytes and was published with"),
        (scribbled, "differs", "cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_was_meddled_with_is_named(
    world: World, parts: list[Path], tamper: Callable[[Path], None], verdict: str, said: str
) -> None:
    before = audited(world.checkpoint)
    tamper(parts[1])

    answer = audited(world.checkpoint)

    assert before["verdict"] == "exact"
    assert answer["verdict"] == verdict, answer
    told = [f"{d['file']} {d['what']}" for d in sink(answer)["differences"]] + sink(answer)["not_provable"]
    assert len(told) == 1, told
    assert said in told[0]
    assert "part-000000000001-000" in told[0]


@pytest.mark.parametrize("tamper", [changed_row, one_twice_and_another_not], ids=lambda f: f.__name__)
def test_other_rows_in_a_file_of_the_same_length_are_found(
    world: World, parts: list[Path], tamper: Callable[[Path], None]
) -> None:
    tamper(parts[1])

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "differs"
    (difference,) = sink(answer)["differences"]
    assert difference == {"epoch": 1, "file": None, "what": "6 rows are there, but not those that were staged"}


def test_a_line_that_was_changed_in_a_compressed_file_is_found(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, RollingFileSink(str(world.first), format="json", compression="gzip", digest=True))
    part = min(world.first.glob("*.json.gz"))
    lines = gzip.decompress(part.read_bytes()).splitlines(keepends=True)
    part.write_bytes(gzip.compress(b"".join([lines[1], *lines[1:]])))
    list_anew(part)

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "differs"
    assert sink(answer)["differences"][0]["epoch"] == 0


def test_a_piece_that_is_still_open_and_gone_is_a_loss(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, RollingFileSink(str(world.first), rolling=Rolling(max_rows=100), digest=True))
    assert is_exact(audited(world.checkpoint), 12)
    piece = min(world.first.glob("_epochal/open/*/000000000001/*.parquet"))
    piece.unlink()

    answer = audited(world.checkpoint)

    assert answer["verdict"] == "differs"
    assert sink(answer)["differences"][0]["what"] == "is missing, and its rows were never published"
    assert piece.name in sink(answer)["differences"][0]["file"]


def test_names_and_lengths_alone_need_no_rows(spark: SparkSession, world: World, parts: list[Path]) -> None:
    clean = audited(world.checkpoint, fast=True)
    doubled(parts[0])

    assert (clean["verdict"], sink(clean)["not_provable"]) == ("consistent", ["rows were not read"])
    assert audited(world.checkpoint, fast=True)["verdict"] == "differs"


def test_compacted_files_are_exact_and_those_they_replaced_no_difference(spark: SparkSession, world: World) -> None:
    world.feed(4)
    run(spark, world, archive(world, format="json", bucket_by=["word"], digest=True))
    assert epochal.cli.main(["compact", str(world.first), "--grace", "1h", "--json"]) == 0
    waiting = audited(world.checkpoint)
    world.feed(6)
    run(spark, world, archive(world, format="json", bucket_by=["word"], digest=True))

    assert is_exact(waiting, 4 * ROWS)
    assert any("not finished" in note for note in sink(waiting)["notes"])
    assert is_exact(audited(world.checkpoint), 6 * ROWS)


def test_rows_of_avro_are_counted(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, archive(world, format="avro"))
    answer = audited(world.checkpoint)
    (file, *_) = visible_files(world.first)
    shutil.copy(file, file.with_name(file.name.replace("-00000-", "-00009-")))

    assert sink(answer)["verdict"] == "exact", answer
    assert sink(answer)["rows"]["found"] == 2 * ROWS
    assert sink(audited(world.checkpoint))["verdict"] == "differs"
