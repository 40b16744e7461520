"""Queries that outlive Spark's own records and the journal's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from epochal import published
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark.checks import committed, leftovers, visible_rows
from integration_tests.spark.queries import run
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

KEPT_EPOCHS = 40  # done epochs in the journal before it is compacted, each with three records


@pytest.fixture
def short_memory(spark: SparkSession) -> Iterator[None]:
    """Spark keeps ten epochs of its logs instead of a hundred."""
    key = "spark.sql.streaming.minBatchesToRetain"
    spark.conf.set(key, "10")
    yield
    spark.conf.unset(key)


@pytest.mark.usefixtures("short_memory")
def test_a_query_of_60_epochs_is_exactly_once_while_spark_and_the_journal_forget(
    spark: SparkSession, world: World
) -> None:
    check_long_query(spark, world, epochs=60)

    assert min(committed(world)) > 40, "Spark purged nothing"


@pytest.mark.matrix
def test_a_query_of_300_epochs_is_exactly_once_with_sparks_own_settings(spark: SparkSession, world: World) -> None:
    check_long_query(spark, world, epochs=300)

    assert min(committed(world)) > 150, "Spark purged nothing"


def check_long_query(spark: SparkSession, world: World, *, epochs: int) -> None:
    for files in (epochs - 5, epochs):  # it starts again after most of its past is forgotten
        world.feed(files)
        run(spark, world)

    view = Journal(LocalFiles(), str(world.journal)).read()
    assert visible_rows(world.first) == all_rows(epochs)
    assert [epoch.epoch for epoch in published(str(world.first))] == list(range(epochs))
    assert leftovers(world.first) == []
    assert (view.waiting(), view.done_through) == ([], epochs - 1)
    assert view.floor >= epochs - 1 - KEPT_EPOCHS
    assert len(list(world.journal.iterdir())) <= 3 * KEPT_EPOCHS + 4
