"""What only the insert can know is known before the epoch is decided: afterwards it could only wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from epochal.participant import BadRows, DataLost, Refused
from integration_tests.postgres.tables import Space, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LONG = "array_join(transform(sequence(0, 150), n -> sha2(CAST(n AS STRING), 512)), '') AS t"  # hardly compressible
MARK = "concat(decode(unhex('EFBBBF'), 'UTF-8'), 'a') AS t"  # a byte order mark, which readers of CSV skip
PADDED = "concat('a', repeat(' ', CAST(id AS INT))) AS t"
GOOD = "CAST('{}' AS STRING COLLATE {}) AS m"
INDEX = "CREATE INDEX ON {table}"

# The table, what is made of it, a row, how many of them, and the error.
TRAPS = {
    "a generated column": (
        "n bigint PRIMARY KEY, m bigint GENERATED ALWAYS AS (n * 4) STORED",
        "",
        "1L << 62 AS n",
        1,
        "22003",
    ),
    "a default that fails": (
        *("k int PRIMARY KEY, t text DEFAULT current_setting('no.such')", "", "7 AS k", 1, "42704"),
    ),
    "a default that fails, beside types of the server": (
        *("k jsonb, t text DEFAULT current_setting('no.such')", "", "'7' AS k", 1, "42704"),
    ),
    "a domain without nulls": (
        "k int PRIMARY KEY",
        "CREATE DOMAIN {table}_needed AS int NOT NULL; ALTER TABLE {table} ADD n {table}_needed",
        *("7 AS k", 1, "n: it is NOT NULL without a default, and not in the frame"),
    ),
    "an expression of an index": ("k int PRIMARY KEY, n int", f"{INDEX} ((1 / n))", "1 AS k, 0 AS n", 1, "22012"),
    "a condition of an index": ("n int", f"{INDEX} (n) WHERE 1 / n > 0", "0 AS n", 1, "22012"),
    "an equality of an index": ("t varchar(9)", "CREATE UNIQUE INDEX ON {table} (t bpchar_ops)", PADDED, 2, "23505"),
    "a long text in an index": ("k int PRIMARY KEY, t text", f"{INDEX} (t)", f"1 AS k, {LONG}", 1, "54000"),
    "a long text beside a key": ("k int, t text, UNIQUE (k) INCLUDE (t)", "", f"1 AS k, {LONG}", 1, "54000"),
    "a long text that stays in its row": ("t text", "ALTER TABLE {table} ALTER t SET STORAGE PLAIN", LONG, 1, "54000"),
    "too many columns": (
        *(", ".join(f"c{n} uuid" for n in range(520)), ""),
        *(", ".join(f"'00000000-0000-0000-0000-00000000002A' AS c{n}" for n in range(520)), 1, "54000"),
    ),
    "a number that would be rounded": ("n numeric(3,-2)", "", "99999 AS n", 1, "does not fit numeric"),
    "a value that is equal without case": (
        "m {mood}",
        "",
        GOOD.format("GOOD", "UTF8_LCASE"),
        1,
        "no value of the enum",
    ),
    "a value with spaces": ("m {mood}", "", GOOD.format("good ", "UTF8_BINARY_RTRIM"), 1, "no value of the enum"),
    "a mark at the beginning": ("t text UNIQUE", "", MARK, 2, "23505"),
    "empty keys": ("t text UNIQUE", "", "'' AS t", 2, "23505"),
    "a key like the end of COPY": ("t text UNIQUE", "", r"r'\.' AS t", 2, "23505"),
    "zeros of both signs": ("n double precision UNIQUE", "", "IF(id = 0, 0D, -0D) AS n", 2, "23505"),
    "padding": ("t char(3) UNIQUE", "", PADDED, 2, "23505"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_row_that_the_table_would_refuse_is_refused_while_it_is_staged(
    spark: SparkSession, space: Space, trap: str
) -> None:
    columns, more, row, count, error = TRAPS[trap]
    space.execute(f"CREATE TYPE {space.name}.mood AS ENUM ('good')")
    table = space.table("trap", columns.replace("{mood}", f"{space.name}.mood"))
    if more:
        space.execute(more.replace("{table}", table))

    with pytest.raises((BadRows, Refused), match=error):
        stage(space.sink(table), 0, spark.sql(f"SELECT {row} FROM range(0, {count}, 1, 1)"))


def test_a_row_outside_of_a_partition_is_refused_while_it_is_staged(spark: SparkSession, space: Space) -> None:
    space.table("whole", "k int) PARTITION BY LIST (k")
    space.execute(f"CREATE TABLE {space.name}.few PARTITION OF {space.name}.whole (PRIMARY KEY (k)) FOR VALUES IN (1)")

    with pytest.raises(BadRows, match="23514"):
        stage(space.sink(f"{space.name}.few"), 0, spark.sql("SELECT 7 AS k"))


def test_a_date_that_is_out_of_range_by_far_is_refused(spark: SparkSession, space: Space) -> None:
    """Its microseconds are more than a long has: without ANSI they look like those of 1970."""
    table = space.table("days", "day date")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(BadRows, match="not in the years 1 to 9999"):
            stage(space.sink(table), 0, spark.sql("SELECT date_from_unix_date(213503983) AS day"))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@contextmanager
def database(space: Space, encoding: str) -> Iterator[str]:
    """A database of another encoding, with a setting that changes how arrays are read."""
    name = f"{space.name}_other"
    space.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        space.execute(f"ALTER DATABASE {name} SET array_nulls TO off")
        yield name
    finally:
        space.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(("encoding", "text"), [("LATIN1", "€"), ("SQL_ASCII", "éé")])
def test_a_database_of_another_encoding_refuses_its_texts_while_they_are_staged(
    spark: SparkSession, space: Space, encoding: str, text: str
) -> None:
    with database(space, encoding) as name:
        with space.connect(dbname=name) as db:
            db.execute("CREATE TABLE words (word varchar(3), more text[])")
        sink = space.sink("public.words", database=name)
        with pytest.raises(BadRows, match=r"22P05|22001"):
            stage(sink, 0, spark.sql(f"SELECT '{text}' AS word"))
        write(sink, 0, spark.sql("SELECT 'é' AS word, array('a', NULL) AS more"))

        with space.connect(dbname=name, client_encoding=encoding.lower()) as db:
            found = db.execute(
                "SELECT convert_from(convert_to(word, 'UTF8'), 'UTF8') IS NULL, more[2] IS NULL FROM words"
            )
            assert found.fetchall() == [(False, True)]


def test_pieces_that_have_other_rows_in_as_many_bytes_stop_the_query(spark: SparkSession, space: Space) -> None:
    table = space.table("numbers", "id text")
    attempt, handle = stage(space.sink(table), 0, spark.range(100_000, 150_000, 1, 2).selectExpr("string(id) AS id"))
    (relation,) = [name for (name,) in space.staged() if name.startswith("staged_")]
    space.execute(f"UPDATE {space.ledger}.{relation} SET data = set_byte(data, 6, 65) WHERE number = 0")

    with pytest.raises(DataLost, match="of the 50000 rows that were staged of epoch 0, 49998 are"):
        space.sink(table).commit(attempt, handle)
    assert space.execute(f"SELECT count(*) FROM {table}") == [(0,)]
