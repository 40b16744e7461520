"""Parquet and ORC files made of others' row groups: nothing is decoded, so nothing may change or get lost."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow.parquet import encryption

from epochal.sinks.files.formats import joining
from epochal.sinks.files.formats.columnar import Columnar
from epochal.sinks.spark.sessions import set_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Of every kind that both formats have. The bucket of a Bloom filter's test is `id`.
COLUMNS = """
    id, if(id % 3 = 0, null, concat('word ', id)) AS word, double(id) / 4 AS ratio, decimal(id) AS exact,
    binary(string(id)) AS bytes, id % 2 = 0 AS even, date_add(date'1582-10-01', int(id)) AS day,
    timestamp_micros(id * 1234567) AS at, array(id, null) AS list, map(string(id), id) AS pairs,
    named_struct('x', id, 'y', cast(null AS string)) AS nested
"""


def written(spark: SparkSession, home: Path, format_: str, count: int) -> list[str]:
    """So many files of 100 rows each."""
    for number in range(count):
        frame = spark.range(100 * number, 100 * (number + 1), numPartitions=1).selectExpr(*_expressions())
        frame.write.format(format_).option("parquet.bloom.filter.enabled#id", "true").save(f"{home}/{number}")
    return sorted(str(file) for file in home.glob(f"*/part-*.{format_}"))


def _expressions() -> list[str]:
    depth, found = 0, [""]
    for letter in COLUMNS:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [expression.strip() for expression in found]


def told(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_a_file_of_copied_row_groups_has_every_value_of_its_pieces(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    pieces = written(spark, tmp_path / "pieces", format_, 3)
    whole = tmp_path / "whole" / f"part.{format_}"
    columnar = Columnar(spark)
    length = columnar.join(format_, str(whole), pieces)

    assert length == whole.stat().st_size
    assert columnar.rows(format_, [*pieces, str(whole)]) == [100, 100, 100, 300]
    assert told(spark.read.format(format_).load(str(whole))) == told(spark.read.format(format_).load(pieces))


def test_indexes_and_bloom_filters_come_along(spark: SparkSession, tmp_path: Path) -> None:
    pieces = written(spark, tmp_path / "pieces", "parquet", 2)
    whole = tmp_path / "part.parquet"
    Columnar(spark).join("parquet", str(whole), pieces)
    footer = pq.read_metadata(whole)
    columns = [footer.row_group(group).column(0) for group in range(footer.num_row_groups)]

    assert [(c.has_column_index, c.has_offset_index) for c in columns] == [(True, True)] * 2
    assert all(offset > 0 for offset in _bloom_filters(spark, whole))
    # By the statistics, the filter and the index one row of one group is found.
    assert spark.read.parquet(str(whole)).where("id = 142").select("word").collect() == [("word 142",)]


def _bloom_filters(spark: SparkSession, file: Path) -> list[int]:
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(str(file))
    input_file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile
    opened = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
        input_file.fromPath(place, spark._jsc.hadoopConfiguration())
    )
    try:
        return [int(group.getColumns()[0].getBloomFilterOffset()) for group in opened.getRowGroups()]
    finally:
        opened.close()


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_pieces_that_are_not_alike_are_not_joined(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    spark.range(5).write.format(format_).save(str(tmp_path / "one"))
    spark.range(5).selectExpr("id AS other").write.format(format_).save(str(tmp_path / "two"))
    pieces = [str(file) for file in sorted(tmp_path.glob(f"*/part-*.{format_}"))]

    assert Columnar(spark).join(format_, str(tmp_path / "whole"), pieces) is None


def test_encrypted_columns_are_not_copied(spark: SparkSession, tmp_path: Path) -> None:
    config = encryption.EncryptionConfiguration("footer", column_keys={"column": ["id"]}, plaintext_footer=True)
    factory = encryption.CryptoFactory(_Keys)
    made = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    table = pa.table({"id": [1, 2, 3]})
    with pq.ParquetWriter(tmp_path / "secret.parquet", table.schema, encryption_properties=made) as writer:
        writer.write_table(table)

    secret = str(tmp_path / "secret.parquet")
    assert Columnar(spark).join("parquet", str(tmp_path / "whole"), [secret, secret]) is None


class _Keys(encryption.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """Keys that are wrapped by nothing."""

    def __init__(self, config: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, master: str) -> bytes:
        return base64.b64decode(key)


def test_a_footer_that_is_encrypted_or_torn_is_an_error_that_names_the_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    pieces = written(spark, tmp_path / "pieces", "parquet", 1)
    whole = Path(pieces[0]).read_bytes()
    for name, content in (("secret", whole[:-4] + b"PARE"), ("torn", whole[:-1]), ("short", b"PAR1"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)

        with pytest.raises(OSError, match=name):
            Columnar(spark).rows("parquet", [str(tmp_path / name)])


def test_a_footer_that_is_longer_than_what_is_read_at_once_is_read_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {f"a column with a name of some length, number {number}": [1, 2, 3] for number in range(2000)}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")

    assert Columnar(spark).rows("parquet", [str(tmp_path / "wide.parquet")]) == [3]


def test_a_session_that_passes_over_broken_files_counts_and_merges_none_as_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    pieces = written(spark, tmp_path / "pieces", "orc", 2)
    Path(pieces[1]).write_bytes(Path(pieces[1]).read_bytes()[:200])
    Path(pieces[1]).with_name(f".{Path(pieces[1]).name}.crc").unlink()
    lenient = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    with set_for(spark, lenient):
        passed_over = spark.read.orc(pieces).count()

        with pytest.raises(Py4JJavaError):
            joining.rows_of(spark, "orc", pieces)
        with pytest.raises(Py4JJavaError):
            joining.merge(spark, "orc", [pieces], lambda frame: frame.write, str(tmp_path / "merged"), None)
    assert passed_over == 100
