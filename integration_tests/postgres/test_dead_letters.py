"""Rows that no column can hold go to another sink, in the same epoch: output and dead letters are the input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import BadRows, RollingFileSink
from epochal.sinks.dead_letters import DeadLetters
from epochal.testing.contract import claim_for
from epochal.txn.model import Batch
from integration_tests.postgres.tables import LINEAGE, Space, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id integer PRIMARY KEY, word varchar(3) NOT NULL, CHECK (id <> 13)"
MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"mode": "upsert", "keys": ["id"], "delete_when": "word = 'x'"},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_rows_that_spark_can_tell_are_unfit_go_to_the_dead_letters_and_the_others_into_the_table(
    spark: SparkSession, space: Space, tmp_path: Path, options: dict[str, Any]
) -> None:
    letters = RollingFileSink(str(tmp_path / "letters"), format="json", name="letters")
    sink = space.sink(space.table("rows", COLUMNS), dead_letters=letters, **options)
    beside = DeadLetters(sink, letters)
    rows = spark.sql("SELECT * FROM VALUES (1L, 'one'), (2L, 'four'), (3L, NULL), (1L << 40, 'two') AS t(id, word)")
    attempt, handle = stage(sink, 0, rows)
    claim_for(beside, LINEAGE)
    staged = beside.stage(Batch(attempt=attempt, rows=rows, offsets="0"))
    sink.commit(attempt, handle)
    beside.commit(attempt, staged.handle)
    found = spark.read.json(str(tmp_path / "letters")).collect()

    assert space.execute(f"SELECT * FROM {space.name}.rows") == [(1, "one")]
    assert staged.seen == 4
    assert {(row["id"], row["word"]): row["_error"] for row in found} == {
        (2, "four"): "word: more than 3 characters",
        (3, None): "word: null",
        (1 << 40, "two"): "id: out of the range of int4",
    }
    assert space.staged() == []


def test_what_only_the_server_can_tell_is_refused_all_the_same(
    spark: SparkSession, space: Space, tmp_path: Path
) -> None:
    letters = RollingFileSink(str(tmp_path / "letters"), format="json", name="letters")
    sink = space.sink(space.table("rows", COLUMNS), dead_letters=letters)
    with pytest.raises(BadRows):
        stage(sink, 0, spark.sql("SELECT 13L AS id, 'one' AS word"))

    named = sink.check_frame(spark.sql("SELECT 1L AS id, 'one' AS word, '' AS _error"))
    assert any(fault.startswith("_error: dead letters get this column") for fault in named)
