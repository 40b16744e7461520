"""Keys that a unique index would refuse are found before the epoch is decided, without a row written to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.participant import BadRows
from epochal.sinks.postgres import pieces
from epochal.sinks.postgres.table import read
from integration_tests.postgres.tables import LINEAGE, Space, stage, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SMALL, LARGE = 5, 20_000  # rows: stored in one piece, and in many


def rows(spark: SparkSession, count: int, start: int = 0) -> DataFrame:
    words = "concat('a\\tb\\\\n', id) AS word", "IF(id % 2 = 0, NULL, id) AS odd"
    return spark.range(start, start + count, 1, 2).selectExpr("id", *words)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("constraint", ["PRIMARY KEY (id)", "UNIQUE (odd, id)", "UNIQUE (word), UNIQUE (odd)"])
def test_a_key_that_is_there_or_twice_in_the_epoch_is_refused_and_nothing_is_written(
    spark: SparkSession, space: Space, count: int, constraint: str
) -> None:
    table = space.table("keyed", f"id bigint, word text, odd bigint, {constraint}")
    sink = space.sink(table)
    write(sink, 0, rows(spark, 3, start=7))
    size = f"SELECT pg_total_relation_size('{table}'::regclass)"
    before = space.execute(size)  # rows that are rolled back stay until a vacuum
    twice = rows(spark, count, start=100).union(rows(spark, 1, start=101))
    for wrong in (rows(spark, count, start=5), twice):  # 5 and 6 are new, and 9 has an odd number
        with pytest.raises(BadRows, match=r"keyed.*23505.*constraint 'keyed_\w+_(key|pkey)'|constraint 'keyed_pkey'"):
            stage(sink, 1, wrong)

    assert space.execute(size) == before
    assert sink.leftovers(LINEAGE) == []
    write(sink, 1, rows(spark, count, start=100))
    assert space.execute(f"SELECT count(*), count(odd) FROM {table}") == [(count + 3, count // 2 + 2)]


def test_new_keys_between_those_that_are_there_are_taken(spark: SparkSession, space: Space) -> None:
    table = space.table("keyed", "id bigint PRIMARY KEY, word text, odd bigint")
    sink = space.sink(table)
    write(sink, 0, rows(spark, 10).where("id IN (0, 9)"))
    write(sink, 1, rows(spark, 10).where("id NOT IN (0, 9)"))

    assert space.execute(f"SELECT count(*), count(DISTINCT word) FROM {table}") == [(10, 10)]


def test_lines_that_are_cut_between_pieces_arrive_whole(
    spark: SparkSession, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "AT_ONCE", 1)
    table = space.table("wide", "id bigint PRIMARY KEY, text text")
    frame = spark.range(0, 2_000, 1, 2).selectExpr("id", "repeat(concat('é\\t', id), 300) AS text")
    few = spark.range(2_000, 2_001, 1, 1).selectExpr("id", "'few' AS text")
    attempt, handle = stage(space.sink(table), 0, frame.union(few))
    (relation,) = [name for (name,) in space.staged() if name.startswith("staged_")]
    cut = space.execute(f"SELECT count(*) FROM {space.ledger}.{relation} WHERE get_byte(data, length(data) - 1) <> 10")
    space.sink(table).commit(attempt, handle)

    assert cut >= [(1,)]
    expected = sum(300 * (2 + len(str(n))) for n in range(2_000)) + 3
    assert space.execute(f"SELECT count(*), sum(length(text)) FROM {table}") == [(2_001, expected)]


def test_indexes_that_compare_in_their_own_way_are_known(space: Space) -> None:
    space.execute(
        f"CREATE COLLATION {space.name}.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    table = space.table("words", f"plain text UNIQUE, folded text COLLATE {space.name}.any_case UNIQUE, other text")
    space.execute(f"""CREATE UNIQUE INDEX bytes ON {table} (plain text_pattern_ops);
        CREATE UNIQUE INDEX cased ON {table} (plain COLLATE {space.name}.any_case);
        CREATE UNIQUE INDEX partial_one ON {table} (plain) WHERE other IS NULL;
        CREATE UNIQUE INDEX lowered ON {table} (lower(plain));
        CREATE UNIQUE INDEX nulls ON {table} (plain) NULLS NOT DISTINCT""")
    with space.connect() as connection:
        indexes = read(connection, space.name, "words").unique

    assert {index.name for index in indexes if index.plain} == {"words_plain_key", "words_folded_key"}
    assert len(indexes) == 7
