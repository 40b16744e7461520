"""Every kind of table that Delta knows: the right route or a refusal, and both readers see the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from epochal import BadRows, DeltaSink, Refused
from epochal.sinks.delta.options import Mode
from integration_tests.delta.tables import by_delta, by_delta_rs, engines, make, numbers, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, word string"


@dataclass(frozen=True)
class Case:
    """A table: how it is made, who commits to it, and whether delta-rs can read it."""

    engine: str = "Delta"
    columns: str = COLUMNS
    rest: str = ""
    properties: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    readable: bool = True


CASES = {
    "plain": Case("delta-rs"),
    "append-only": Case("delta-rs", properties=("'delta.appendOnly'='true'",)),
    "change data feed": Case("delta-rs", properties=("'delta.enableChangeDataFeed'='true'",)),
    "CHECK": Case(after=("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)",)),
    "NOT NULL": Case(columns="id bigint NOT NULL, word string"),
    "VARCHAR": Case(columns="id bigint, word varchar(3)"),
    "column mapping": Case(properties=("'delta.columnMapping.mode'='name'",), readable=False),
    "deletion vectors": Case(properties=("'delta.enableDeletionVectors'='true'",)),
    "row tracking": Case(properties=("'delta.enableRowTracking'='true'",)),
    "in-commit timestamps": Case(properties=("'delta.enableInCommitTimestamps'='true'",)),
    "clustering": Case(rest="CLUSTER BY (id)"),
    "type widening": Case(properties=("'delta.enableTypeWidening'='true'",)),
    "identity": Case(columns="id bigint, word string, n bigint GENERATED ALWAYS AS IDENTITY"),
    "generated": Case(columns="id bigint, word string, n bigint GENERATED ALWAYS AS (id * 2)"),
    "transaction expiry": Case(properties=("'delta.setTransactionRetentionDuration'='interval 30 days'",)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_route_is_right_and_both_readers_agree(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case, table = CASES[name], tmp_path / "table"
    make(spark, table, case.columns, rest=case.rest, properties=case.properties)
    for statement in case.after:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    made = DeltaTable(table).version() if case.readable else None
    sink = DeltaSink(str(table))
    write(sink, 0, numbers(spark, 1, 2))
    write(sink, 1, numbers(spark, 3))
    write(sink, 1, numbers(spark, 3))  # once more, as a replay would

    found = by_delta(spark, table)
    assert sum(found.values()) == 3
    assert max(found.values()) == 1
    if made is not None and _is_read_by_delta_rs(table):
        assert by_delta_rs(table) == found
        assert engines(table)[:2] == [case.engine] * 2
        assert DeltaTable(table).version() == made + 2


def _is_read_by_delta_rs(table: Path) -> bool:
    try:
        by_delta_rs(table)
    except (DeltaError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    ("prepare", "rows", "reason"),
    [
        ("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 5)", (1, 9), "breaks the table's constraint small"),
        ("ALTER TABLE {t} ADD CONSTRAINT word CHECK (word <> 'w9')", (9,), "breaks the table's constraint word"),
    ],
)
def test_a_row_that_breaks_a_constraint_is_refused_before_anything_is_staged(
    spark: SparkSession, tmp_path: Path, prepare: str, rows: tuple[int, ...], reason: str
) -> None:
    table = tmp_path / "table"
    make(spark, table, COLUMNS)
    spark.sql(prepare.format(t=f"delta.`{table}`"))

    with pytest.raises(BadRows, match=reason):
        write(DeltaSink(str(table)), 0, numbers(spark, *rows))
    assert by_delta(spark, table) == {}


def test_a_null_in_a_not_null_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint NOT NULL, word string")

    with pytest.raises(BadRows, match="id is NOT NULL in the table"):
        write(DeltaSink(str(table)), 0, spark.sql("SELECT bigint(null) id, 'x' word"))
    assert by_delta(spark, table) == {}


def test_a_text_that_is_too_long_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, word varchar(3)")

    with pytest.raises(BadRows, match=r"word is longer than varchar\(3\)"):
        write(DeltaSink(str(table)), 0, spark.sql("SELECT 1L id, 'four' word"))


def test_a_constraint_on_a_column_that_delta_fills_in_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, word string, n bigint GENERATED ALWAYS AS (id * 2)")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (n < 9)")

    with pytest.raises(Refused, match="asks for columns that the frame does not have"):
        write(DeltaSink(str(table)), 0, numbers(spark, 1))


def test_a_constraint_means_at_commit_what_it_meant_when_the_rows_were_staged(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, zone = tmp_path / "table", "spark.sql.session.timeZone"
    make(spark, table, "at timestamp, day date")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT same CHECK (day = CAST(at AS DATE))")
    spark.conf.set(zone, "Asia/Tokyo")
    try:
        rows = spark.sql("SELECT TIMESTAMP'2026-11-17 01:00:00' at, DATE'2026-11-17' day")
        write(DeltaSink(str(table)), 0, rows)
    finally:
        spark.conf.set(zone, "UTC")

    assert spark.read.format("delta").load(str(table)).count() == 1


def test_a_promise_inside_of_a_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, s struct<a: bigint NOT NULL>")

    with pytest.raises(Refused, match="cannot be checked"):
        write(DeltaSink(str(table)), 0, spark.sql("SELECT 1L id, named_struct('a', 1L) s"))


@pytest.mark.parametrize("mode", ["complete", "upsert"])
def test_an_append_only_table_is_neither_replaced_nor_merged(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    table = tmp_path / "table"
    make(spark, table, COLUMNS, properties=("'delta.appendOnly'='true'",))
    sink = DeltaSink(str(table), mode=mode, keys=["id"] if mode == "upsert" else [])

    with pytest.raises(BadRows, match="append-only"):
        write(sink, 0, numbers(spark, 1))


def test_a_session_without_deltas_code_is_told_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(spark, tmp_path / "table", "id bigint NOT NULL, word string")
    missing: Callable[[object], bool] = lambda _: False  # noqa: E731
    monkeypatch.setattr("epochal.sinks.delta.table.jvm._has_delta", missing)

    with pytest.raises(Refused, match=r"epochal\.session"):
        write(DeltaSink(str(tmp_path / "table"), mode="upsert", keys=["id"]), 0, numbers(spark, 1))
