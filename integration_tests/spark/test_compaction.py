"""Published files of every format become fewer, and no reader sees another row, value or type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import epochal
from epochal.sinks.files.compaction.compactor import Compactor, Report
from epochal.sinks.files.compaction.joiners import Joiners
from epochal.sinks.files.formats.avro import SOURCE
from epochal.sinks.files.layout import Layout, ending_of
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.options import Format
from epochal.sinks.spark.sessions import set_for
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.model import Attempt
from integration_tests.spark.checks import rows_in, visible_files, visible_rows
from integration_tests.spark.epochs import LINEAGE, publish_epochs, publish_frame
from integration_tests.spark.world import all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 4


def compact(target: Path, *, header: bool | None = None, max_bytes: int = 1 << 20) -> Report:
    return Compactor(LocalSinkFiles(), Layout(str(target)), max_bytes, header=header).run()


def listed_rows(target: Path) -> Counter[Any]:
    files = [target / path for epoch in epochal.published(str(target)) for path, _ in epoch.files]
    return Counter(row for file in files for row in rows_in(file))


@pytest.mark.parametrize(
    ("format_", "compression"),
    [("parquet", None), ("parquet", "gzip"), ("parquet", "lz4_raw"), ("orc", None), ("orc", "zlib"), ("json", None)],
)
def test_every_bucket_becomes_one_file_of_the_same_rows(
    spark: SparkSession, tmp_path: Path, format_: Format, compression: str | None
) -> None:
    target = tmp_path / "target"
    sink = epochal.RollingFileSink(str(target), format=format_, bucket_by=["kind"], compression=compression)
    publish_epochs(spark, sink, range(EPOCHS))
    endings = {ending_of(file.name) for file in visible_files(target)}

    report = compact(target)

    assert len(report.joined) == len(visible_files(target)) == 3
    assert {ending_of(file.name) for file in visible_files(target)} == endings
    assert visible_rows(target) == listed_rows(target) == all_rows(EPOCHS)
    assert report.choice.unfit == []


def test_csv_with_a_header_has_it_once(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    sink = epochal.RollingFileSink(str(target), format="csv", bucket_by=["word"], options={"header": "true"})
    publish_epochs(spark, sink, range(EPOCHS))

    compact(target, header=True)

    assert len(visible_files(target)) == 2
    assert visible_rows(target) == all_rows(EPOCHS)
    assert [file.read_text().count("id,file") for file in visible_files(target)] == [1, 1]


def every_type(spark: SparkSession, first: int) -> DataFrame:
    return spark.range(first, first + 3).selectExpr(
        "id",
        "cast(id as decimal(20, 3)) as money",
        "timestamp_seconds(id * 1000000 + 0.25) as at",
        "cast(timestamp_seconds(id * 1000000) as timestamp_ntz) as local",
        "date_from_unix_date(cast(id * 1000 as int)) as day",
        "cast(cast(id as string) as binary) as raw",
        "array(id, null) as list",
        "map(cast(id as string), struct(id as a, cast(null as double) as b)) as nested",
        "'constant' as never_null",
        "cast('NaN' as double) as nan",
    )


def read_all(spark: SparkSession, format_: Format, target: Path) -> tuple[str, list[str]]:
    frame = spark.read.format(format_).load(str(target))
    return frame.schema.simpleString(), sorted(str(row) for row in frame.collect())


@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_values_and_types_are_the_same_whatever_the_streams_settings_were(
    spark: SparkSession, tmp_path: Path, format_: Format, timestamps: str
) -> None:
    target = tmp_path / "target"
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    sink = epochal.RollingFileSink(str(target), format=format_)
    for epoch in range(3):
        publish_frame(sink, epoch, every_type(theirs, epoch * 3).coalesce(1))
    before = read_all(spark, format_, target)
    types = physical(target) if format_ == "parquet" else None

    report = compact(target)

    assert report.choice.unfit == []
    assert len(visible_files(target)) == 1
    assert read_all(spark, format_, target) == before
    assert types is None or physical(target) == types


def physical(target: Path) -> set[tuple[str, str]]:
    """The columns of Parquet files as any reader finds them."""
    found = set()
    for file in visible_files(target):
        schema = pq.ParquetFile(file).schema
        found |= {
            (schema.column(n).path, f"{schema.column(n).physical_type} {schema.column(n).logical_type}")
            for n in range(len(schema))
        }
    return found


def test_files_of_different_schemas_are_not_joined(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    sink = epochal.RollingFileSink(str(target))
    texts = ["id", "id", "id, 'x' as added", "id, 'y' as added", "cast(id as string) as id", "cast(id as string) as id"]
    for epoch, text in enumerate(texts):
        publish_frame(sink, epoch, spark.range(1).selectExpr(*text.split(", ")).coalesce(1))

    report = compact(target)

    assert [len(joined.replaced) for joined in report.joined] == [2, 2, 2]
    assert [pq.ParquetFile(file).metadata.num_rows for file in visible_files(target)] == [2, 2, 2]
    assert (
        spark.read.option("mergeSchema", "true").parquet(*[str(file) for file in visible_files(target)[:2]]).count()
        == 4
    )


def test_a_file_that_is_no_parquet_is_left_alone_and_named(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    publish_epochs(spark, epochal.RollingFileSink(str(target)), range(3))
    broken = visible_files(target)[1]
    broken.write_bytes(b"x" * broken.stat().st_size)

    report = compact(target)

    assert [path for path, _ in report.choice.unfit] == [broken.name]
    assert report.joined == ()
    assert len(visible_files(target)) == 3


def test_a_merge_that_does_not_have_all_rows_is_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    publish_epochs(spark, epochal.RollingFileSink(str(target), bucket_by=["kind"]), range(2))
    really = Joiners._path
    monkeypatch.setattr(
        Joiners, "_path", lambda self, file: really(self, file).replace("part-000000000001-", "part-000000000000-")
    )

    report = compact(target)

    assert report.number is None
    assert visible_rows(target) == all_rows(2)
    assert not list((target / "_epochal" / "compacting").glob("*"))


def test_avro_files_are_joined_block_by_block(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for epoch in range(3):
        put_avro(spark, target, epoch, codec="deflate" if epoch else "null")

    report = compact(target)

    assert [len(joined.replaced) for joined in report.joined] == [2]  # the other has another codec
    assert sorted(read_avro(spark, target)) == ['{"id": 0}', '{"id": 1}', '{"id": 2}']
    assert len(visible_files(target)) == 2


def test_avro_files_with_dates_of_different_calendars_are_not_joined(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    sink = epochal.RollingFileSink(str(target), format="avro")
    for epoch, mode in enumerate(("LEGACY", "CORRECTED", "CORRECTED", "LEGACY")):
        with set_for(spark, {"spark.sql.avro.datetimeRebaseModeInWrite": mode}):
            publish_frame(sink, epoch, spark.range(1).selectExpr("date'1000-01-01' AS day").coalesce(1))

    report = compact(target)
    days = spark.read.format(SOURCE).load(str(target)).selectExpr("cast(day AS string)").collect()

    assert [len(joined.replaced) for joined in report.joined] == [2]  # neighbours of one calendar
    assert [row[0] for row in days] == ["1000-01-01"] * 4


def put_avro(spark: SparkSession, target: Path, epoch: int, codec: str) -> None:
    jvm: Any = spark._jvm
    avro = jvm.org.apache.avro
    schema = avro.Schema.Parser().parse('{"type":"record","name":"row","fields":[{"name":"id","type":"long"}]}')
    writer = avro.file.DataFileWriter(avro.generic.GenericDatumWriter())
    writer.setCodec(avro.file.CodecFactory.fromString(codec))
    path = target / f"part-{epoch:012d}-00000-1f0c9a2e.avro"
    target.mkdir(exist_ok=True)
    writer.create(schema, jvm.java.io.File(str(path)))
    record = avro.generic.GenericData.Record(schema)
    record.put("id", epoch)
    writer.append(record)
    writer.close()
    entry = PublishedEpoch(LINEAGE, epoch, 1, "digest", 1, ((path.name, path.stat().st_size),)).encode()
    LocalSinkFiles().create(f"{target}/{Layout(str(target)).manifest_name(Attempt(LINEAGE, epoch, 1))}", entry)


def read_avro(spark: SparkSession, target: Path) -> list[str]:
    jvm: Any = spark._jvm
    found = []
    for file in visible_files(target):
        stream = jvm.org.apache.avro.file.DataFileStream(
            jvm.java.io.FileInputStream(str(file)), jvm.org.apache.avro.generic.GenericDatumReader()
        )
        while stream.hasNext():
            found.append(str(stream.next().toString()))
        stream.close()
    return found
