"""Values go into the table as they are, or are refused with the column and the number of rows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from epochal.participant import BadRows, Refused
from epochal.sinks.postgres.table import read
from integration_tests.postgres.tables import LINEAGE, Space, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXT = "a\tb\nc\\d\re \"f\" 'g' {h,i} \\N \\. é😀 %s"
COLUMNS = """
    small smallint, middle integer, large bigint, whole numeric(20), exact numeric(38,18),
    single real, double_ double precision,
    widened double precision, yes boolean, text text, short varchar(20), fixed char(4), bytes bytea, day date,
    at timestamptz, local timestamp, hundredths timestamptz(2), mood {space}.mood, id uuid,
    numbers bigint[], texts text[], times timestamptz[], document jsonb, listed json, mapped jsonb
"""
ROW = """
    CAST(7 AS TINYINT) AS small, CAST(2147483647 AS BIGINT) AS middle, -9223372036854775807L - 1L AS large,
    12L AS whole, CAST('-12345678901234567890.123456789012345678' AS DECIMAL(38,18)) AS exact,
    CAST(0.1 AS FLOAT) AS single, CAST('NaN' AS DOUBLE) AS double_, CAST(0.1 AS FLOAT) AS widened, true AS yes,
    $text$ AS text, 'é' AS short, 'ab' AS fixed, unhex('00FF5C0A') AS bytes, DATE'0001-01-01' AS day,
    TIMESTAMP'2026-10-25 00:30:00.123456Z' AS at, TIMESTAMP_NTZ'2026-03-29 02:30:00.000001' AS local,
    TIMESTAMP'2026-10-25 01:30:00.12Z' AS hundredths, 'so-so "x"' AS mood,
    '00000000-0000-0000-0000-00000000002A' AS id, array(1L, NULL, -3L) AS numbers,
    array('', 'NULL', NULL, $text$) AS texts, array(TIMESTAMP'2026-10-25 01:30:00Z') AS times,
    named_struct('a', $text$, 'b', CAST(NULL AS INT), 'c', array(1.5D)) AS document, array(1, 2) AS listed,
    map('k', named_struct('at', TIMESTAMP'2026-10-25 01:30:00Z')) AS mapped
"""


@pytest.fixture
def zone(spark: SparkSession) -> Any:
    """A time zone in which an hour of the tests' times exists twice."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("zone")
def test_every_type_is_stored_as_it_is_and_null_stays_null(spark: SparkSession, space: Space) -> None:
    from pyspark.sql import functions as f

    space.execute(f"""CREATE TYPE {space.name}.mood AS ENUM ('so-so "x"', 'good')""")
    table = space.table("every", COLUMNS.format(space=space.name))
    spark.createDataFrame([(TEXT,)], "value string").createOrReplaceTempView("texts")
    row = spark.sql(f"SELECT {ROW.replace('$text$', 'value')} FROM texts")
    nulls = spark.range(1).select(*(f.lit(None).cast(field.dataType).alias(field.name) for field in row.schema))
    write(space.sink(table), 0, row.union(nulls).coalesce(1))

    with space.connect() as connection:
        connection.execute("SET TimeZone TO 'UTC'")
        (found,) = connection.execute(f"SELECT * FROM {table} WHERE small IS NOT NULL").fetchall()
        (empty,) = connection.execute(f"SELECT * FROM {table} WHERE small IS NULL").fetchall()
    got = dict(zip([name.split()[0] for name in COLUMNS.replace("\n", " ").split(", ")], found, strict=False))
    assert set(empty) == {None}
    assert (got["small"], got["middle"], got["large"], got["whole"]) == (7, 2**31 - 1, -(2**63), 12)
    assert got["exact"] == Decimal("-12345678901234567890.123456789012345678")
    assert math.isnan(got["double_"])
    assert got["widened"] != 0.1
    assert got["widened"] == pytest.approx(0.1)
    assert (got["text"], got["short"], got["fixed"], got["bytes"]) == (TEXT, "é", "ab  ", b"\0\xff\\\n")
    assert got["day"] == date(1, 1, 1)
    assert got["at"] == datetime(2026, 10, 25, 0, 30, 0, 123456, tzinfo=UTC)
    assert got["local"] == datetime(2026, 3, 29, 2, 30, 0, 1)  # noqa: DTZ001  # that is the point
    assert got["hundredths"] == datetime(2026, 10, 25, 1, 30, 0, 120000, tzinfo=UTC)
    assert (got["mood"], str(got["id"])) == ('so-so "x"', "00000000-0000-0000-0000-00000000002a")
    assert got["numbers"] == [1, None, -3]
    assert got["texts"] == ["", "NULL", None, TEXT]
    assert got["times"] == [datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]
    assert got["document"] == {"a": TEXT, "b": None, "c": [1.5]}
    assert got["listed"] == [1, 2]
    assert got["mapped"] == {"k": {"at": "2026-10-25T01:30:00.000000Z"}}


def test_names_of_any_kind_are_names(spark: SparkSession, space: Space) -> None:
    name = 'we"ird. %s; DROP'
    quoted = '"' + name.replace('"', '""') + '"'
    with space.connect() as connection:
        connection.execute(f"CREATE TABLE {space.name}.{quoted} ({quoted} bigint PRIMARY KEY)".encode())
        frame = spark.createDataFrame([(1,), (2,)], f"`{name}` long").coalesce(1)
        write(space.sink(f"{space.name}.{quoted}"), 0, frame)
        write(space.sink(f"{space.name}.{quoted}", mode="upsert", keys=[name]), 1, frame)

        assert connection.execute(f"SELECT * FROM {space.name}.{quoted} ORDER BY 1".encode()).fetchall() == [(1,), (2,)]


UNFIT = [
    ("numeric(4,2)", "CAST(100 AS DECIMAL(10,2))", "too many digits"),
    ("smallint", "40000", "out of the range of int2"),
    ("varchar(3)", "'four'", "more than 3 characters"),
    ("text", "concat('a', char(0))", "code 0"),
    ("text", "CAST(unhex('FF') AS STRING)", "no UTF-8"),
    ("uuid", "'no-uuid'", "no UUID"),
    ("text NOT NULL", "CAST(NULL AS STRING)", "null"),
    ("timestamptz(3)", "TIMESTAMP'2026-10-25 01:30:00.1234Z'", "more than 3 digits of a second"),
    ("timestamptz", "TIMESTAMP'+10000-10-25 01:30:00Z'", "not in the years"),
    ("smallint[]", "array(1, 40000)", "out of the range of int2 in an array"),
    ("{space}.mood", "'bad'", "no value of the enum"),
    ("jsonb", "named_struct('a', concat('x', char(0)))", r"22P05"),
    ("{space}.positive", "-1", "23514"),
    ("inet", "'no address'", "22P02"),
]


def test_unfit_values_are_refused_with_their_column_and_leave_nothing(spark: SparkSession, space: Space) -> None:
    space.execute(f"CREATE TYPE {space.name}.mood AS ENUM ('good')")
    space.execute(f"CREATE DOMAIN {space.name}.positive AS integer CHECK (VALUE > 0)")
    columns = ", ".join(f"c{n} {kind.format(space=space.name)}" for n, (kind, *_) in enumerate(UNFIT) if n != 6)
    table = space.table("picky", columns + ", c6 text NOT NULL DEFAULT ''")
    sink = space.sink(table)
    for number, (_, value, reason) in enumerate(UNFIT):
        rows = spark.sql(f"SELECT {value} AS c{number} FROM range(3)").coalesce(1)
        with pytest.raises(BadRows, match=reason) as raised:
            stage(sink, 0, rows)
        assert f"c{number}" in str(raised.value)
        assert "Nothing of the epoch was written" in str(raised.value)
        assert "3 rows" in str(raised.value) or number > 10
        for secret in ("four", "no-uuid", "40000", "no address"):
            assert secret not in str(raised.value)
    assert sink.leftovers(LINEAGE) == []
    assert space.staged() == []
    assert space.execute(f"SELECT * FROM {table}") == []


def test_all_that_is_wrong_with_a_frame_is_reported_before_the_query_starts(spark: SparkSession, space: Space) -> None:
    table = space.table(
        "strict",
        "id bigint PRIMARY KEY, amount numeric(10,2), day date, needed text NOT NULL, at timestamp,"
        " twice bigint GENERATED ALWAYS AS (id * 2) STORED",
    )
    frame = spark.sql(
        "SELECT 1L AS id, CAST(1 AS DECIMAL(10,4)) AS amount, 'x' AS day, 1 AS Amount2, current_timestamp() AS at,"
        " 2L AS twice, INTERVAL 1 DAY AS wait"
    )
    faults = space.sink(table, mode="upsert", keys=["day"]).check_frame(frame)

    assert [fault.partition(":")[0] for fault in faults] == [
        *("Amount2", "wait", "amount", "day", "at", "twice", "needed", "keys=['day']"),
    ]


def test_a_table_that_can_never_be_a_target_is_refused(space: Space) -> None:
    space.execute(f"CREATE VIEW {space.name}.seen AS SELECT 1 AS n")
    space.execute(f"CREATE UNLOGGED TABLE {space.name}.fleeting (n int)")
    for name, why in (("seen", "is no table"), ("fleeting", "is not logged"), ("missing", "does not exist")):
        with pytest.raises(Exception, match=why) as raised:
            space.sink(f"{space.name}.{name}").open(LINEAGE)
        assert "Nothing was written" in str(raised.value)


def test_a_table_with_rules_is_refused_because_they_change_what_is_written(space: Space) -> None:
    """INSERT ... SELECT would follow them, and COPY not: their number would decide."""
    table = space.table("ruled", "n int")
    sink = space.sink(table)
    sink.open(LINEAGE)
    space.execute(f"CREATE RULE few AS ON INSERT TO {table} WHERE NEW.n > 1 DO INSTEAD NOTHING")

    with pytest.raises(Refused, match=r'has rules, "few".*Nothing was written'):
        sink.open(LINEAGE)


def test_partitions_that_a_crash_empties_or_that_commit_by_themselves_are_refused(space: Space) -> None:
    table = space.table("parted", "n int) PARTITION BY RANGE (n")
    space.execute(
        f"CREATE TABLE {space.name}.good PARTITION OF {table} FOR VALUES FROM (0) TO (10) PARTITION BY LIST (n)"
    )
    sink = space.sink(table)
    sink.open(LINEAGE)
    space.execute(f"CREATE UNLOGGED TABLE {space.name}.fleeting PARTITION OF {space.name}.good DEFAULT")
    with pytest.raises(Refused, match=rf"not logged, {space.name}\.fleeting"):
        sink.open(LINEAGE)
    space.execute(f"ALTER TABLE {space.name}.fleeting SET LOGGED")
    sink.open(LINEAGE)

    space.execute("CREATE EXTENSION IF NOT EXISTS postgres_fdw")
    space.execute(f"CREATE SERVER {space.name} FOREIGN DATA WRAPPER postgres_fdw")
    try:
        of = f"PARTITION OF {table} FOR VALUES FROM (10) TO (20) SERVER {space.name}"
        space.execute(f"CREATE FOREIGN TABLE {space.name}.far {of}")
        with pytest.raises(Refused, match=rf"foreign tables or not logged, {space.name}\.far"):
            sink.open(LINEAGE)
    finally:
        space.execute(f"DROP SERVER {space.name} CASCADE")


def test_many_rows_of_many_tasks_arrive_once(spark: SparkSession, space: Space) -> None:
    table = space.table("many", "id bigint, text text")
    frame = spark.range(0, 30_000, 1, 4).selectExpr("id", "repeat('x', CAST(id % 50 AS INT)) AS text")
    few = spark.range(30_000, 30_003, 1, 1).selectExpr("id", "'few' AS text")
    attempt, handle = stage(space.sink(table), 0, frame.union(few))
    staged = space.staged()
    space.sink(table).commit(attempt, handle)

    assert len(staged) == 2, "large epochs have a table of their own"
    assert space.execute(f"SELECT count(*), count(DISTINCT id), sum(length(text)) FROM {table}") == [
        (30_003, 30_003, sum(n % 50 for n in range(30_000)) + 9)
    ]
    assert space.staged() == []


@pytest.mark.parametrize("mode", ["append", "upsert", "accumulate"])
def test_a_trigger_that_drops_rows_is_refused_with_their_number(spark: SparkSession, space: Space, mode: str) -> None:
    table = space.table("filtered", "id bigint PRIMARY KEY, total bigint")
    space.execute(f"""CREATE FUNCTION {space.name}.odd() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; NEW.total := NEW.total + 100; RETURN NEW; END $$;
        CREATE TRIGGER odd BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {space.name}.odd()""")
    options: dict[str, dict[str, Any]] = {
        "append": {},
        "upsert": {"mode": "upsert", "keys": ["id"]},
        "accumulate": {"mode": "accumulate", "keys": ["id"], "totals": {"total": "sum"}},
    }
    sink, rows = space.sink(table, **options[mode]), spark.range(1, 8).selectExpr("id", "id AS total").coalesce(1)
    with pytest.raises(BadRows, match=r"a trigger of .*filtered.* drops 3 rows.*Filter the rows in the query"):
        stage(sink, 0, rows)
    assert space.staged() == []
    write(sink, 1, rows.where("id % 2 = 1"))

    assert space.execute(f"SELECT id, total FROM {table} ORDER BY id") == [(n, n + 100) for n in (1, 3, 5, 7)]


def test_types_are_spelled_alike_under_any_search_path(spark: SparkSession, space: Space) -> None:
    space.execute(f"CREATE TYPE {space.name}.mood AS ENUM ('good')")
    columns = f'id bigint, "mood" {space.name}.mood, moods {space.name}.mood[], short varchar(3)[], exact numeric(5,2)'
    table = space.table("typed", columns)

    def spelled(path: str) -> dict[str, str]:
        with space.connect() as connection:
            connection.execute(f"SET search_path TO {path}".encode())
            return {name: one.spelled for name, one in read(connection, *table.split(".")).columns.items()}

    found = spelled("public")
    assert found == spelled(f"{space.name}, public")
    assert found == {
        "id": "bigint",
        "mood": f"{space.name}.mood",
        "moods": f"{space.name}.mood[]",
        "short": "character varying(3)[]",
        "exact": "numeric(5,2)",
    }
    write(space.sink(table), 0, spark.sql("SELECT 1L AS id, 'good' AS mood, array('good') AS moods"))
    assert space.execute(f"SELECT id, mood::text, moods::text FROM {table}") == [(1, "good", "{good}")]
