"""Columns that change between two starts: what Spark's readers make of such files, and what is refused for it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

import epochal
from epochal import BadRows, DeltaSink, EpochWriter, ForeignTarget, Rolling, RollingFileSink
from epochal.sinks.files.columns import FileColumns
from epochal.sinks.files.formats.joining import source_of
from integration_tests.spark.queries import archive, stream, to_checkpoint, tree
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = pytest.mark.spark

INT, TEXT = "SELECT id, cast(file AS int) AS amount FROM source", "SELECT id, word AS amount FROM source"
WRITERS: dict[str, dict[str, str]] = {"csv": {"header": "true"}, "xml": {"rowTag": "ROW"}}
TYPED, AS_TEXT = ("parquet", "orc", "avro"), ("json", "xml", "csv")
ALL = (*TYPED, *AS_TEXT)

# What the columns were, what they are now, and the formats whose files are read together without harm.
CHANGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a new column": ("1 id", "3 id, 4 v", ("parquet", "orc", "avro", "json", "xml")),
    "a column less": ("1 id, 2 v", "3 id", ("parquet", "orc", "avro", "json", "xml")),
    "another order": ("1 id, 'b' v", "'d' v, 3 id", ("parquet", "orc", "avro", "json", "xml")),
    "other capitals": ("1 id, 2 v", "3 id, 4 V", ()),
    "int to bigint": ("1 id, 2 v", "3 id, 5000000000L v", AS_TEXT),
    "bigint to int": ("1 id, 5000000000L v", "3 id, 4 v", ()),
    "int to double": ("1 id, 2 v", "3 id, 4.5D v", AS_TEXT),
    "decimal(10,2) to decimal(12,2)": (
        "1 id, cast(2.5 AS decimal(10,2)) v",
        "3 id, cast(4500000000.5 AS decimal(12,2)) v",
        AS_TEXT,
    ),
    "int to string": ("1 id, 2 v", "3 id, 'x' v", ()),
    "string to int": ("1 id, 'x' v", "3 id, 4 v", ()),
    "date to timestamp": ("1 id, date'2020-01-01' v", "3 id, timestamp'2020-01-02 03:04:05' v", ()),
    "a new field": (
        "1 id, named_struct('a', 1) v",
        "3 id, named_struct('a', 2, 'b', 'z') v",
        ("parquet", "orc", "avro", "json", "xml"),
    ),
    "a field of another type": ("1 id, named_struct('a', 1) v", "3 id, named_struct('a', 'z') v", ()),
    "elements of another type": ("1 id, array(1) v", "3 id, array('z') v", ()),
}
SAMPLE = {
    ("int to bigint", "parquet"),
    ("int to bigint", "json"),
    ("int to string", "orc"),
    ("another order", "csv"),
    ("a field of another type", "parquet"),
}
MATRIX = [
    pytest.param(change, format_, id=f"{change}-{format_}", marks=() if is_sample else pytest.mark.matrix)
    for change, (before, _, _) in CHANGES.items()
    for format_ in ALL
    if not (format_ == "csv" and ("struct" in before or "array" in before))
    for is_sample in [(change, format_) in SAMPLE]
]


def same(written: Any, found: Any) -> bool:
    """Whether a reader has got a value, of the columns and fields that it sees; numbers may be wider."""
    if isinstance(written, dict):
        return isinstance(found, dict) and all(same(written[name], found[name]) for name in written if name in found)
    if isinstance(written, int | float | Decimal):
        return isinstance(found, int | float | Decimal) and float(found) == float(written)
    return bool(found == written)


def is_read(reader: DataFrameReader, folder: Path, frames: list[DataFrame]) -> bool:
    """Whether a reader of a folder gets every value that was written, of the columns that it sees."""
    try:
        found = reader.load(str(folder))
        rows = {row["id"]: row.asDict(recursive=True) for row in found.collect()}
    except (PySparkException, Py4JJavaError, ValueError):  # a time that Python does not have
        return False
    written = [row.asDict(recursive=True) for frame in frames for row in frame.collect()]
    return all(same(row, rows.get(row["id"])) for row in written)


@pytest.mark.parametrize(("change", "format_"), MATRIX)
def test_what_is_allowed_is_what_sparks_readers_get_right(
    spark: SparkSession, tmp_path: Path, change: str, format_: Any
) -> None:
    before, now, allowed = CHANGES[change]
    frames = [spark.sql(f"SELECT {columns}") for columns in (before, now)]
    (tmp_path / "read").mkdir()
    for number, frame in enumerate(frames):
        writer = (
            frame.coalesce(1).write.format(source_of(format_)).mode("overwrite").options(**WRITERS.get(format_, {}))
        )
        writer.save(str(tmp_path / "made"))
        (made,) = (tmp_path / "made").glob("part-*")
        made.rename(tmp_path / "read" / f"part-{number}.{made.name.partition('.')[2]}")

    def reader(**options: str) -> DataFrameReader:
        return spark.read.format(source_of(format_)).options(**WRITERS.get(format_, {}), **options)

    plain = reader(inferSchema="true", mergeSchema="false"), reader(mergeSchema="true", inferSchema="true")
    usual = [is_read(one, tmp_path / "read", frames) for one in (*plain, reader().schema(frames[1].schema))]
    old = is_read(reader().schema(frames[0].schema), tmp_path / "read", frames)
    sink = RollingFileSink(str(tmp_path / "target"), format=format_)
    brought, brings = (FileColumns.of(sink, frame.schema) for frame in frames)

    assert (brings.changes_since(brought) == []) is (format_ in allowed)
    if format_ in allowed:
        assert all(usual)
    elif change != "other capitals":  # which harm readers of JSON and CSV, and of structs; and whoever is exact
        assert not all([*usual, old])


def query(spark: SparkSession, world: World, sql: str) -> DataFrame:
    stream(spark, world).createOrReplaceTempView("source")
    return spark.sql(sql)


def test_a_changed_type_is_refused_before_anything_is_written_in_all_sinks_at_once(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)

    def writer(**options: Any) -> EpochWriter:
        return EpochWriter(
            RollingFileSink(str(world.first), name="archive", rolling=Rolling(max_bytes="64 MB")),
            RollingFileSink(str(world.second), name="lines", format="json"),
            DeltaSink(str(world.table), name="lake"),
            **options,
        )

    writer().start(to_checkpoint(query(spark, world, INT), world)).awaitTermination()
    world.feed(2)
    before = tree(world.root)

    with pytest.raises(BadRows) as refused:
        writer().start(to_checkpoint(query(spark, world, TEXT), world))
    answer = str(refused.value)
    for name, format_, place in (("archive", "parquet", world.first), ("lines", "json", world.second)):
        assert f"sink {name!r}: its columns do not fit the {format_} files in {place}: " in answer
    assert answer.count("amount: string, was int (of stream ") == 2  # what is only open counts too
    assert "sink 'lake': amount: string in the frame, int in the table" in answer
    assert tree(world.root) == before

    other = World(world.root / "other")
    with pytest.raises(BadRows, match="refused for 4 reasons") as foreign:
        writer().start(to_checkpoint(query(spark, world, TEXT), other))
    assert str(foreign.value).count("amount: string, was int") == 2  # and what can be adopted
    assert "adopt='" in str(foreign.value)
    assert tree(world.root) == before

    plain = to_checkpoint(query(spark, world, TEXT), world).foreachBatch(writer()).start()
    with pytest.raises(StreamingQueryException) as ended:
        plain.awaitTermination()
    assert isinstance(epochal.cause_of(ended.value), BadRows)
    for target in world.targets:
        assert tree(target) == {
            path.removeprefix(f"{target.name}/"): 1 for path in before if path.startswith(f"{target.name}/")
        }


def test_a_change_that_is_allowed_goes_on_and_later_starts_are_held_to_it(spark: SparkSession, world: World) -> None:
    world.feed(1)
    columns = "SELECT id, cast(file AS int) AS amount FROM source", "SELECT id, file AS amount FROM source"
    rolling = Rolling(max_bytes="64 MB")
    for files, (sql, allows) in enumerate(zip(columns, (False, True), strict=True), start=1):
        world.feed(files)
        sink = RollingFileSink(str(world.first), rolling=rolling, changed_columns="allow" if allows else "refuse")
        EpochWriter(sink).start(to_checkpoint(query(spark, world, sql), world)).awaitTermination()
    found = spark.read.schema("id long, amount long").parquet(str(world.first))

    with pytest.raises(BadRows, match="amount: int, was bigint"):
        EpochWriter(RollingFileSink(str(world.first), rolling=rolling)).start(
            to_checkpoint(query(spark, world, columns[0]), world)
        )
    assert found.count() == 6  # the part of the first start was closed: no file has both
    assert [field.dataType.simpleString() for field in spark.read.parquet(str(world.first)).schema] == ["bigint", "int"]


@pytest.mark.parametrize("capitals_count", [True, False])
def test_columns_that_differ_in_capitals_alone_restart_where_the_session_tells_them_apart(
    spark: SparkSession, world: World, capitals_count: bool
) -> None:
    columns = "file AS a, word AS A" if capitals_count else "file AS a"
    spark.conf.set("spark.sql.caseSensitive", str(capitals_count).lower())
    try:
        for files in (1, 2):
            world.feed(files)
            frame = query(spark, world, f"SELECT id, {columns} FROM source")
            EpochWriter(archive(world)).start(to_checkpoint(frame, world)).awaitTermination()
        rows = [row.asDict() for row in spark.read.parquet(str(world.first)).collect()]
        world.feed(3)
        other = query(spark, world, "SELECT id, word AS A FROM source")
        if capitals_count:
            EpochWriter(archive(world)).start(to_checkpoint(other, world)).awaitTermination()
        else:
            with pytest.raises(BadRows, match="A: was spelled a"):
                EpochWriter(archive(world)).start(to_checkpoint(other, world))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")

    assert sorted(row["id"] for row in rows) == list(range(12))
    assert {tuple(row) for row in rows} == {("id", "a", "A") if capitals_count else ("id", "a")}


def test_two_streams_on_one_target_never_bring_two_types_of_a_column(spark: SparkSession, world: World) -> None:
    other = World(world.root / "other")
    plain, more_int, more_text = "", ", cast(file AS int) AS more", ", word AS more"

    def start(one: World, files: int, columns: str, **options: Any) -> None:
        one.feed(files)
        frame = query(spark, one, f"SELECT id{columns} FROM source")
        EpochWriter(archive(world), **options).start(to_checkpoint(frame, one)).awaitTermination()

    start(world, 1, plain)
    with pytest.raises(ForeignTarget) as foreign:
        start(other, 1, plain)
    start(other, 1, plain, new=[token for option, token in foreign.value.offers if option == "new"])
    start(world, 1, more_int)  # there is no new epoch: it has not written the column

    with pytest.raises(BadRows, match=r"more: string, was int .* has written none yet"):
        start(other, 2, more_text)
    start(other, 2, more_int)
    start(world, 2, more_int)
    assert spark.read.schema("id long, more int").parquet(str(world.first)).count() == 24
