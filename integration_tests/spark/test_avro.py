"""Avro: with the code that Spark 4.2 brings, without a jar; and pieces joined so that no value can change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal.cli
from epochal import BadRows, EpochWriter, Rolling
from epochal.sinks.files.formats.avro import CODECS, SOURCE
from integration_tests.spark.avro_files import blocks_of, head_of
from integration_tests.spark.checks import committed, leftovers, rows_in, visible_files, visible_rows
from integration_tests.spark.queries import archive, run, stream, to_checkpoint
from integration_tests.spark.world import ROWS, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR = Rolling(max_age="1 h")  # nothing appears in a test's time
NODE = json.dumps(
    {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"], "default": None}],
    }
)
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["one", "two"]}},
        ],
    }
)
TYPES = {
    "byte": "cast(id % 100 AS byte)",
    "short": "cast(id AS short)",
    "int": "cast(id AS int)",
    "float": "cast(id / 7 AS float)",
    "double": "id / 7",
    "yes": "id % 2 = 0",
    "bytes": "encode(word, 'utf-8')",
    "day": "date_add(date'0001-01-01', cast(id AS int))",
    "moment": "timestamp'0001-01-01 00:00:00.000001' + make_dt_interval(cast(id AS int))",
    "local": "cast('1900-01-01 00:00:00.123456' AS timestamp_ntz)",
    "large": "cast(id AS decimal(28, 10)) / 3",
    "small": "cast(id AS decimal(7, 2))",
    "months": "make_ym_interval(1, cast(id AS int))",
    "seconds": "make_dt_interval(cast(id AS int), 1, 2, 3.000004)",
    "texts": "array(word, null)",
    "lists": "map(word, array(id, null))",
    "nested": "struct(id AS a, struct(word AS b, array(struct(cast(id AS short) AS c)) AS d) AS e)",
}


def write(world: World, frame: DataFrame, **options: object) -> None:
    """Run a query into the world's first target."""
    sink = archive(world, format="avro", **options)
    EpochWriter(sink).start(to_checkpoint(frame, world)).awaitTermination()


def roll(world: World) -> None:
    """Publish what is open, by the command line in this process; the kill chains have it in one of its own."""
    assert epochal.cli.main(["roll", str(world.checkpoint)]) == 0


def pieces(world: World) -> list[Path]:
    return sorted((world.first / "_epochal" / "open").rglob("part-*.avro"))


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.mark.parametrize("rolling", [None, HOUR], ids=["each epoch", "joined"])
def test_every_type_is_read_back_as_it_was(spark: SparkSession, world: World, rolling: Rolling | None) -> None:
    never_null = [f"{made} AS {name}" for name, made in TYPES.items()]
    often_null = [f"if(id % 5 = 0, null, {made}) AS {name}_or_null" for name, made in TYPES.items()]
    world.feed(3)
    write(world, stream(spark, world).selectExpr("id", *never_null, *often_null), rolling=rolling)
    if rolling is not None:
        roll(world)
    made = spark.read.parquet(str(world.source)).selectExpr("id", *never_null, *often_null)
    found = spark.read.format(SOURCE).load(str(world.first))

    assert len(visible_files(world.first)) == (3 if rolling is None else 1)
    assert texts_of(found) == texts_of(made)


def texts_of(frame: DataFrame) -> list[str]:
    """The rows, as Spark spells them, to the microsecond: Python has no value for some."""
    return sorted(str(row[0]) for row in frame.selectExpr("cast(struct(*) AS string)").collect())


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["id"], {}),
        (["id", "word"], {"recordName": "Order", "recordNamespace": "shop", "compression": "deflate"}),
        (["id", "word"], {"avroSchema": ORDER, "positionalFieldMatching": "true", "compression": "uncompressed"}),
        (["id", "struct(id) AS next"], {"avroSchema": NODE}),  # a schema that Spark can write, and not read
    ],
    ids=["plain", "named", "renamed", "recursive"],
)
def test_a_joined_file_has_the_head_and_the_blocks_of_its_pieces(
    spark: SparkSession, world: World, columns: list[str], options: dict[str, str]
) -> None:
    world.feed(3)
    write(world, stream(spark, world).selectExpr(*columns), options=options, rolling=Rolling(max_rows=100))
    heads = [head_of(piece) for piece in pieces(world)]
    blocks = [block for piece in pieces(world) for block in blocks_of(piece)]
    roll(world)
    (file,) = visible_files(world.first)

    assert [count for count, _ in blocks] == [ROWS, ROWS, ROWS]
    assert heads == [head_of(file)] * 3
    assert blocks_of(file) == blocks


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_joined_and_read_back(spark: SparkSession, world: World, codec: str) -> None:
    world.feed(2)
    run(spark, world, archive(world, format="avro", compression=codec, rolling=Rolling(max_rows=2 * ROWS)))
    (file,) = visible_files(world.first)

    assert head_of(file)["avro.codec"].decode() == ("null" if codec == "uncompressed" else codec)
    assert spark.read.format(SOURCE).load(str(world.first)).count() == 2 * ROWS


def test_pieces_of_different_codecs_are_joined_in_that_of_the_first(spark: SparkSession, world: World) -> None:
    name = "spark.sql.avro.compression.codec"
    for files, codec in enumerate(("deflate", "snappy"), 1):
        world.feed(files)
        with setting(spark, name, codec):
            run(spark, world, archive(world, format="avro", rolling=Rolling(max_rows=2 * ROWS)))
    (file,) = visible_files(world.first)

    assert head_of(file)["avro.codec"] == b"deflate"
    assert visible_rows(world.first) == all_rows(2)


def test_a_part_closes_when_dates_are_written_in_another_calendar(spark: SparkSession, world: World) -> None:
    day = "date'1000-01-01' AS day"  # in the old calendar another number of days
    for files, mode in ((2, "CORRECTED"), (4, "LEGACY")):
        world.feed(files)
        with setting(spark, "spark.sql.avro.datetimeRebaseModeInWrite", mode):
            write(world, stream(spark, world).selectExpr("id", day), rolling=HOUR)
    roll(world)
    days = spark.read.format(SOURCE).load(str(world.first)).selectExpr("cast(day AS string)").distinct().collect()

    assert len(visible_files(world.first)) == 2
    assert [row[0] for row in days] == ["1000-01-01"]


def test_a_file_holds_at_most_max_rows(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run(spark, world, archive(world, format="avro", max_rows_per_file=4))

    assert [len(rows_in(file)) for file in visible_files(world.first)] == [4, 2, 4, 2]


def test_buckets_may_be_left_out_of_the_files_and_of_their_schema(spark: SparkSession, world: World) -> None:
    world.feed(2)
    frame = stream(spark, world).selectExpr("id", "word")
    write(world, frame, bucket_by=["word"], drop_bucket_columns=True, rolling=Rolling(max_rows=ROWS))
    fields = [json.loads(head_of(file)["avro.schema"])["fields"] for file in visible_files(world.first)]

    assert [[field["name"] for field in kinds] for kinds in fields] == [["id"], ["id"]]


def test_a_torn_piece_stops_the_query_before_anything_is_built_on_it(spark: SparkSession, world: World) -> None:
    world.feed(2)
    sink = {"format": "avro", "rolling": Rolling(max_rows=3 * ROWS)}
    run(spark, world, archive(world, **sink))
    torn = pieces(world)[1]
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # the mark at the end of its only block
    for checksum in torn.parent.glob(".*.crc"):
        checksum.unlink()
    world.feed(3)
    with pytest.raises(Exception, match="Invalid sync"):
        run(spark, world, archive(world, **sink))
    before = visible_files(world.first)
    torn.write_bytes(whole)
    run(spark, world, archive(world, **sink))

    assert before == []
    assert visible_rows(world.first) == all_rows(3)


@pytest.mark.parametrize(
    ("columns", "options", "answer"),
    [
        (["map(id, word) AS pairs"], {}, "Unexpected type MapType"),
        (["id AS `a b`"], {}, "cannot save the column `a b`"),
        (["word AS number", "word AS size"], {"avroSchema": ORDER}, "SQL field 'number' to Avro field 'number'"),
        (["id AS number", "'huge' AS size"], {"avroSchema": ORDER}, "because a value cannot be written since"),
        (["id AS number", "cast(null AS string) AS size"], {"avroSchema": ORDER}, "Cannot write null value for field"),
    ],
)
def test_a_frame_that_avro_cannot_hold_is_refused_with_the_column_and_without_the_value(
    spark: SparkSession, world: World, columns: list[str], options: dict[str, str], answer: str
) -> None:
    world.feed(1)

    with pytest.raises(BadRows, match=answer) as caught:
        write(world, stream(spark, world).selectExpr(*columns), options=options)
    assert "huge" not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2
    assert leftovers(world.first) == []
    assert committed(world) == set()


@pytest.mark.parametrize("options", [{"avroSchema": "{"}, {"recordName": "a b"}])
def test_an_option_that_avro_cannot_read_is_told_before_the_query_starts(
    spark: SparkSession, world: World, options: dict[str, str]
) -> None:
    world.feed(1)

    with pytest.raises(BadRows, match="Spark's writer says"):
        run(spark, world, archive(world, format="avro", options=options))
    assert not world.first.exists()
    assert not world.checkpoint.exists()
