"""Dead letters with a rolling policy: rows that another sink rejects appear when their part rolls, and never twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from epochal import Rolling, RollingFileSink
from epochal.txn.model import Batch, Staged
from integration_tests.spark.audits import audited
from integration_tests.spark.checks import visible_files
from integration_tests.spark.queries import run
from integration_tests.spark.test_rolling import ask
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Picky(RollingFileSink):
    """A sink that will have rows of one word only."""

    def __init__(self, path: str, dead_letters: RollingFileSink) -> None:
        super().__init__(path)
        self.dead_letters = dead_letters

    def rejected(self, rows: DataFrame) -> DataFrame:
        return rows.where("word <> 'one'")

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        accepted = replace(batch, rows=batch.rows.where("word = 'one'"))
        return replace(super().stage(accepted), seen=batch.rows.count())


def ids(world: World, *, letters: bool) -> Counter[int]:
    files = visible_files(world.second if letters else world.first)
    return Counter(number for file in files for number in pq.read_table(file).column("id").to_pylist())


def wanted(files: int, *, letters: bool) -> Counter[int]:
    return Counter(row[0] for row in all_rows(files).elements() if (row[3] != "one") is letters)


def test_dead_letters_that_roll_are_told_and_shown_once(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def picky() -> Picky:
        letters = RollingFileSink(str(world.second), name="letters", rolling=Rolling(max_rows=7), digest=True)
        return Picky(str(world.first), letters)

    world.feed(2)
    run(spark, world, picky())
    open_before = ask(capsys, "status", str(world.checkpoint))["open"]
    shown_before = ids(world, letters=True)
    world.feed(4)
    run(spark, world, picky())
    shown_after = ids(world, letters=True)
    found = audited(world.checkpoint)
    rolled = ask(capsys, "roll", str(world.checkpoint))

    assert [(part["sink"], part["rows"]) for part in open_before] == [("letters", 6)]
    assert shown_before == Counter()
    assert shown_after.total() == 9
    assert {sink["name"]: sink["verdict"] for sink in found["sinks"]} == {"files": "exact", "letters": "exact"}
    assert rolled
    assert ids(world, letters=True) == wanted(4, letters=True)
    assert ids(world, letters=False) == wanted(4, letters=False)
