"""What Spark reads back from a target is what the stream had, in every format."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import epochal
from epochal import EpochWriter, Rolling, RollingFileSink
from epochal.sinks.files.formats.joining import source_of
from epochal.sinks.files.options import Format, Marker
from integration_tests.spark.checks import published_by_manifest, visible_files
from integration_tests.spark.queries import stream, to_checkpoint
from integration_tests.spark.world import World, put_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PLAIN = "number long, share double, word string, yes boolean, price decimal(12,2), day date"
NESTED = PLAIN + ", tags array<string>, pairs map<string, long>, inner struct<a: long, b: string>"
ROWS: list[dict[str, Any]] = [
    {
        "number": number,
        "share": number / 8,
        "word": word,
        "yes": number % 2 == 0,
        "price": decimal.Decimal(number) / 4,
        "day": datetime.date(2026, 11, 1 + number),
        "tags": [word or "", "x"],
        "pairs": {"n": number},
        "inner": {"a": number, "b": word},
    }
    for number, word in enumerate(["plain", "a,b;\"c\"'d'", "Grüße 🎉", None, "<tag>&amp;", "tab\tquote\\"])
]
ARROW = {
    "number": pa.int64(),
    "share": pa.float64(),
    "word": pa.string(),
    "yes": pa.bool_(),
    "price": pa.decimal128(12, 2),
    "day": pa.date32(),
    "tags": pa.list_(pa.string()),
    "pairs": pa.map_(pa.string(), pa.int64()),
    "inner": pa.struct({"a": pa.int64(), "b": pa.string()}),
}


def names(schema: str) -> list[str]:
    return [name for name in ARROW if f"{name} " in schema]


def feed(world: World, schema: str) -> None:
    """Two epochs of three rows each."""
    for epoch in (0, 1):
        part = ROWS[epoch * 3 : epoch * 3 + 3]
        columns = {name: pa.array([_arrow(row[name]) for row in part], ARROW[name]) for name in names(schema)}
        put_table(world.source, epoch, pa.table(columns))


def _arrow(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) and set(value) == {"n"} else value


def write(spark: SparkSession, world: World, sink: RollingFileSink, schema: str) -> None:
    EpochWriter(sink).start(to_checkpoint(stream(spark, world, schema), world)).awaitTermination()


def read(spark: SparkSession, target: Path, form: Format, schema: str, **options: str) -> list[dict[str, Any]]:
    frame: DataFrame = spark.read.schema(schema).options(**options).format(source_of(form)).load(str(target))
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: int(row["number"]))


@pytest.mark.parametrize(
    ("form", "schema", "writing", "reading"),
    [
        ("parquet", NESTED, {}, {}),
        ("orc", NESTED, {}, {}),
        ("avro", NESTED, {}, {}),
        ("json", NESTED, {}, {}),
        ("csv", PLAIN, {"header": "true"}, {"header": "true"}),
        ("xml", PLAIN, {"rowTag": "order"}, {"rowTag": "order"}),
    ],
    ids=["parquet", "orc", "avro", "json", "csv", "xml"],
)
def test_every_format_is_read_back_equal(
    spark: SparkSession, world: World, form: Format, schema: str, writing: dict[str, str], reading: dict[str, str]
) -> None:
    feed(world, schema)
    write(spark, world, RollingFileSink(str(world.first), format=form, options=writing), schema)

    assert read(spark, world.first, form, schema, **reading) == [
        {name: row[name] for name in names(schema)} for row in ROWS
    ]
    assert all(f".{form}" in file.suffixes for file in visible_files(world.first))


def test_every_csv_file_has_its_header(spark: SparkSession, world: World) -> None:
    feed(world, PLAIN)
    write(spark, world, RollingFileSink(str(world.first), format="csv", options={"header": "true"}), PLAIN)

    heads = {file.read_text(encoding="utf-8").splitlines()[0] for file in visible_files(world.first)}
    assert heads == {"number,share,word,yes,price,day"}


def test_text_is_read_back_equal(spark: SparkSession, world: World) -> None:
    feed(world, PLAIN)
    lines = stream(spark, world, PLAIN).selectExpr("concat('line ', number) as value")
    sink = RollingFileSink(str(world.first), format="text")
    EpochWriter(sink).start(to_checkpoint(lines, world)).awaitTermination()

    found = sorted(row["value"] for row in spark.read.text(str(world.first)).collect())
    assert found == [f"line {number}" for number in range(6)]


@pytest.mark.parametrize(
    ("form", "codec", "ending"),
    [
        ("parquet", "zstd", ".zstd.parquet"),
        ("orc", "zlib", ".zlib.orc"),
        ("avro", "zstandard", ".zstandard.avro"),
        ("json", "gzip", ".json.gz"),
    ],
)
def test_compressed_files_say_so_and_are_read_back_equal(
    spark: SparkSession, world: World, form: Format, codec: str, ending: str
) -> None:
    feed(world, PLAIN)
    write(spark, world, RollingFileSink(str(world.first), format=form, compression=codec), PLAIN)

    assert read(spark, world.first, form, PLAIN) == [{name: row[name] for name in names(PLAIN)} for row in ROWS]
    assert {file.name.partition("-")[2].partition(".")[2] for file in visible_files(world.first)} == {ending[1:]}


def test_rows_of_parquet_files_are_counted_by_spark_if_pyarrow_cannot_read_a_footer(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encrypted(path: str) -> None:
        raise pa.ArrowInvalid(f"{path}: magic bytes not found, the footer may be encrypted")

    monkeypatch.setattr("pyarrow.parquet.read_metadata", encrypted)
    feed(world, PLAIN)
    write(spark, world, RollingFileSink(str(world.first), rolling=Rolling(max_rows=3)), PLAIN)

    assert [epoch.rows for epoch in epochal.published(str(world.first))] == [3, 3]
    assert len(visible_files(world.first)) == 2


def test_a_file_holds_at_most_max_rows(spark: SparkSession, world: World) -> None:
    world.feed(2)
    sink = RollingFileSink(str(world.first), format="json", max_rows_per_file=4)
    EpochWriter(sink).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    counts = [len(file.read_text().splitlines()) for file in visible_files(world.first)]
    assert counts == [4, 2, 4, 2]


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("none", set()),
        ("epoch", {"_SUCCESS-000000000000-", "_SUCCESS-000000000001-"}),
        ("bucket", {"word=one/_SUCCESS", "word=two/_SUCCESS"}),
    ],
)
def test_markers_are_where_they_were_asked_for(
    spark: SparkSession, world: World, marker: Marker, expected: set[str]
) -> None:
    world.feed(2)
    sink = RollingFileSink(str(world.first), bucket_by=["word"], marker=marker)
    query = EpochWriter(sink).start(to_checkpoint(stream(spark, world), world))
    query.awaitTermination()

    found = {str(path.relative_to(world.first)) for path in world.first.rglob("_SUCCESS*")}
    assert {name.removesuffix(query.id[:8]) for name in found} == expected


def test_the_manifest_lists_just_the_files_that_are_there(spark: SparkSession, world: World) -> None:
    world.feed(3)
    sink = RollingFileSink(str(world.first), bucket_by=["kind", "word"])
    EpochWriter(sink).start(to_checkpoint(stream(spark, world), world)).awaitTermination()
    epochs = epochal.published(str(world.first))

    there = {str(file.relative_to(world.first)): file.stat().st_size for file in visible_files(world.first)}
    assert {name: length for epoch in epochs for name, length in epoch.files} == there
    assert published_by_manifest(world.first) == there
    assert [(epoch.epoch, epoch.rows) for epoch in epochs] == [(0, 6), (1, 6), (2, 6)]
    paths = [f"{world.first}/{name}" for epoch in epochs for name, _ in epoch.files]
    assert spark.read.parquet(*paths).count() == 18
