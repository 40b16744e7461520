"""What goes in comes out, in every type that both sides have; what cannot is refused before anything is decided."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal import BadRows, CassandraSink, DataLost, EpochWriter, Refused, RollingFileSink, Tuning
from epochal.participant import Outcome
from epochal.spark_plugins.conf import writer_from_settings
from integration_tests.cassandra.tables import LINEAGE, Keyspace, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ONE = "00000000-0000-1000-8000-000000000001"
EARLY = datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)  # noqa: DTZ001  # as the driver has it
# column -> type of CQL, expression of Spark, what the driver reads
TYPES: dict[str, tuple[str, str, Any]] = {
    "ascii_": ("ascii", "'plain'", "plain"),
    "bigint_": ("bigint", "-9223372036854775808L", -(2**63)),
    "blob_": ("blob", "X'00ff'", b"\0\xff"),
    "boolean_": ("boolean", "true", True),
    "date_": ("date", "DATE'1969-12-31'", datetime.date(1969, 12, 31)),
    "decimal_": ("decimal", "-12345678901234567890.123BD", Decimal("-12345678901234567890.123")),
    "double_": ("double", "-1.5e300D", -1.5e300),
    "float_": ("float", "0.5F", 0.5),
    "inet_": ("inet", "'::1'", "::1"),
    "int_": ("int", "-2147483648L", -(2**31)),
    "smallint_": ("smallint", "32767", 32767),
    "text_": ("text", "'ü€𝄞'", "ü€𝄞"),
    "time_": ("time", "86399999999999L", "23:59:59.999999999"),
    "timestamp_": ("timestamp", "TIMESTAMP'1969-12-31 23:59:59.999Z'", EARLY),
    "timeuuid_": ("timeuuid", f"'{ONE}'", uuid.UUID(ONE)),
    "tinyint_": ("tinyint", "-128", -128),
    "uuid_": ("uuid", f"'{ONE}'", uuid.UUID(ONE)),
    "varint_": ("varint", "99999999999999999999999999999999999999BD", 10**38 - 1),
    "list_": ("frozen<list<text>>", "array('b', 'a', 'b')", ["b", "a", "b"]),
    "set_": ("set<int>", "array(3, -1, 2)", {-1, 2, 3}),
    "map_": ("map<text, bigint>", "map('x', 1L, 'y', 2L)", {"x": 1, "y": 2}),
    "deep_": ("frozen<map<int, frozen<list<timestamp>>>>", "map(1, array(TIMESTAMP'1970-01-01 00:00:00.001Z'))", None),
    "tuple_": ("tuple<int, text>", "struct(7 AS a, 'seven' AS b)", (7, "seven")),
    "place_": ("frozen<place>", "named_struct('zip', 7, 'street', 'a')", ("a", 7)),
    "vector_": ("vector<float, 3>", "array(1F, 2F, 3F)", [1.0, 2.0, 3.0]),
}


def test_every_type_comes_out_as_it_went_in(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    space.execute(f"CREATE TYPE {space.name}.place (street text, zip int)")
    table = space.table("types", "id int PRIMARY KEY, " + ", ".join(f"{name} {t[0]}" for name, t in TYPES.items()))
    frame = spark.range(1).selectExpr("cast(id AS int) AS id", *(f"{t[1]} AS {name}" for name, t in TYPES.items()))
    nulls = spark.range(1, 2).selectExpr(
        "cast(id AS int) AS id", *(f"if(id = 0, {t[1]}, NULL) AS {name}" for name, t in TYPES.items())
    )
    sink = space.sink(table, staging=str(tmp_path))
    write(sink, 0, frame.union(nulls))
    full, empty = sorted(space.execute(f"SELECT * FROM {table}"), key=lambda row: row.id)

    for name, (kind, _, expected) in TYPES.items():
        found = getattr(full, name)
        if expected is not None:
            assert str(found) == str(expected) if kind in ("time", "date") else found == expected, name
        assert not getattr(empty, name), name
    assert full.deep_[1] == [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)]  # noqa: DTZ001  # the driver's


@pytest.mark.parametrize("first", [True, False])
def test_a_staged_file_that_is_none_any_more_is_lost_by_name(
    spark: SparkSession, space: Keyspace, tmp_path: Path, first: bool
) -> None:
    table = space.table("damaged", "id bigint PRIMARY KEY")
    sink = space.sink(table, staging=str(tmp_path))
    attempt, handle = stage(sink, 0, spark.range(20).repartition(3))
    files = sorted(tmp_path.glob("*/*/data/*.parquet"))
    damaged = files[0] if first else files[-1]  # Spark takes the columns from the first
    whole = damaged.read_bytes()
    damaged.write_bytes(b"\0" * len(whole))

    with pytest.raises(DataLost) as lost:
        sink.commit(attempt, handle)
    assert f"sink {sink.name!r}: {damaged} cannot be read as the Parquet file that was staged" in str(lost.value)
    damaged.write_bytes(whole)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert sorted(row.id for row in space.execute(f"SELECT id FROM {table}")) == list(range(20))


def test_a_whole_stream_lands_in_cassandra_and_files_on_the_same_epochs(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("orders", "customer bigint, id bigint, amount decimal, PRIMARY KEY (customer, id)")
    schema = "customer long, id long, amount decimal(10,2)"
    for part in range(3):
        rows = spark.range(100 * part, 100 * part + 100)
        rows.selectExpr("id % 7 customer", "id", "cast(id AS decimal(10,2)) amount").coalesce(1).write.mode(
            "append"
        ).parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    writer = EpochWriter(space.sink(table), RollingFileSink(str(tmp_path / "files")))
    writer.start(
        stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    ).awaitTermination()

    found = {(row.customer, row.id, row.amount) for row in space.execute(f"SELECT * FROM {table}")}
    assert found == {(n % 7, n, Decimal(n)) for n in range(300)}
    assert [epoch.rows for epoch in epochal.published(str(tmp_path / "files"))] == [100, 100, 100]
    assert not list((tmp_path / "checkpoint" / "epochal-staged").glob("cassandra/*/*"))
    (ledger,) = space.execute(f"SELECT epoch FROM {space.name}.epochal_streams")
    assert ledger.epoch == 2


def test_settings_alone_describe_a_sink(space: Keyspace) -> None:
    prefix = "spark.epochal.orders"
    writer = writer_from_settings(
        {
            f"{prefix}.sinks": "serving",
            f"{prefix}.serving.type": "cassandra",
            f"{prefix}.serving.table": "shop.totals",
            f"{prefix}.serving.contact_points": "127.0.0.1, 127.0.0.2",
            f"{prefix}.serving.port": str(space.port),
            f"{prefix}.serving.mode": "accumulate",
            f"{prefix}.serving.totals.amount": "sum",
        },
        "orders",
    )

    assert repr(writer.sinks[0]) == "CassandraSink('shop.totals', mode='accumulate', name='serving')"


@pytest.mark.parametrize(
    ("columns", "frame", "reason"),
    [
        ("id bigint PRIMARY KEY", ["NULL AS id"], "void"),
        ("id bigint PRIMARY KEY", ["if(id > 0, NULL, id) AS id"], "the key column id is null in a row"),
        ("id bigint PRIMARY KEY, v int", ["id", "id + 2147483646 AS v"], "a row's v is out of range for int"),
        ("id text PRIMARY KEY", ["if(id = 1, '', 'a') AS id"], "a row's id is empty"),
        ("id bigint PRIMARY KEY, v timestamp", ["id", "timestamp_micros(id) AS v"], "has microseconds"),
        ("id bigint PRIMARY KEY, v counter", ["id", "id AS v"], "has counter columns"),
        ("id bigint PRIMARY KEY, v list<bigint>", ["id", "array(id) AS v"], "is not frozen"),
        ("id bigint PRIMARY KEY", ["id % 1 AS id"], "several rows of one epoch have the same id"),
        ("id bigint PRIMARY KEY, v blob", ["id", "cast(repeat('x', 5000) AS binary) AS v"], "max_row_bytes"),
        ("id bigint PRIMARY KEY", ["id", "id AS extra"], "extra: not in the table"),
        ("id bigint, c int, s int static, PRIMARY KEY (id, c)", ["id", "1 AS c", "2 AS s"], "s: a static column"),
    ],
)
def test_bad_input_is_refused_with_its_reason_and_nothing_is_written(
    spark: SparkSession, space: Keyspace, tmp_path: Path, columns: str, frame: list[str], reason: str
) -> None:
    table = space.table("t", columns)
    sink = space.sink(table, staging=str(tmp_path / "staged"), tuning=Tuning(max_row_bytes=4096))
    rows = spark.range(3).selectExpr(*frame)

    with pytest.raises((BadRows, Refused)) as raised:
        stage(sink, 0, rows)
    assert reason in str(raised.value)
    assert space.execute(f"SELECT * FROM {table}") == []


def test_a_table_that_is_not_there_is_told_with_the_nearest_name(space: Keyspace, tmp_path: Path) -> None:
    space.table("orders", "id int PRIMARY KEY")

    with pytest.raises(Refused, match="there is no such table; did you mean 'orders'"):
        space.sink(f"{space.name}.order", staging=str(tmp_path)).open("x")


def test_dead_letters_get_what_the_table_cannot_hold_in_the_same_epoch(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("t", "id int PRIMARY KEY, v int")
    bad = RollingFileSink(str(tmp_path / "bad"), format="json", name="bad")
    sink = space.sink(table, dead_letters=bad)
    values = [(1, 1), (2, 1 << 40), (None, 3), (4, 4), (4, 5), (6, None)]
    spark.createDataFrame(values, "id long, v long").coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long, v long").parquet(str(tmp_path / "in"))
    EpochWriter(sink).start(
        stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    ).awaitTermination()
    letters = spark.read.schema("id long, v long, _error string").json(str(tmp_path / "bad")).collect()

    good = [(row.id, row.v) for row in space.execute(f"SELECT id, v FROM {table}")]
    assert sorted(good) == [(1, 1), (6, None)]
    assert sorted([*good, *((row["id"], row["v"]) for row in letters)], key=str) == sorted(values, key=str)
    assert {row["id"]: row["_error"].split(";")[0] for row in letters} == {
        2: "a row's v is out of range for int",
        None: "the key column id is null in a row",
        4: "several rows of one epoch have the same id",
    }


def test_a_table_is_the_same_however_its_cluster_is_spelled(space: Keyspace, tmp_path: Path) -> None:
    table, other = (space.table(name, "id bigint PRIMARY KEY") for name in ("t", "u"))
    by_name = CassandraSink(table, contact_points=["localhost"], port=space.port, staging=str(tmp_path))
    found = space.sink(table).open(LINEAGE)

    assert by_name.open(LINEAGE).target != found.target
    assert by_name.open(LINEAGE).identity == found.identity
    assert space.sink(other).open(LINEAGE).identity != found.identity
