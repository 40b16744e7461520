"""Drivers killed around the commits that Delta's own code makes: merges, and tables that delta-rs may not touch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from integration_tests.spark.chains import Lane, killed_side_by_side, worlds_below
from integration_tests.spark.checks import committed, planned
from integration_tests.spark.children import Children
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

AHEAD = 3
# Of two sinks the first is merged into. A kill after its log entry, and after that of the second: each is repeated.
# Before the first's nothing has changed since the record, before the second's nothing since the first's.
CHAIN = ("after-log", "after-log@2")
LONG_CHAIN = (
    "after-table",
    "after-prepared",
    "before-log",
    "after-log",
    "before-log@2",
    "after-log@2",
    "before-cleanup",
)


@pytest.mark.parametrize(
    "lanes",
    [tuple((point,) for point in CHAIN), pytest.param((LONG_CHAIN,), marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def test_kills_around_merges_and_appends_by_delta_leave_every_row_once(
    spark: SparkSession, drivers: Children, world: World, lanes: tuple[tuple[str, ...], ...]
) -> None:
    killed = [
        Lane(world=one, chain=chain, arguments=("--sinks", "by-delta"), check=lambda: None, ahead=AHEAD)
        for one, chain in zip(worlds_below(world, len(lanes)), lanes, strict=True)
    ]
    counts = killed_side_by_side(drivers, killed, spark)

    for lane, files in zip(killed, counts, strict=True):
        assert set(planned(lane.world).values()) <= committed(lane.world)
        for table in (lane.world.second, lane.world.table):
            theirs = spark.read.format("delta").load(str(table)).collect()
            others = DeltaTable(table).to_pyarrow_table().to_pylist()
            assert Counter((r["id"], r["file"], r["kind"], r["word"]) for r in theirs) == all_rows(files)
            assert Counter((r["id"], r["file"], r["kind"], r["word"]) for r in others) == all_rows(files)
            assert list(table.glob("_epochal/staged/*/*")) == []
