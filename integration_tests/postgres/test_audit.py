"""An audit counts and digests rows where they say which epoch they came from, and says so where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from integration_tests.postgres.tables import Space
from integration_tests.spark import queries
from integration_tests.spark.audits import audited, is_exact
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 3
DIGESTED: dict[str, Any] = {"epoch_column": "epoch", "digest": True}


@pytest.fixture(autouse=True)
def login(monkeypatch: pytest.MonkeyPatch, space: Space) -> None:
    monkeypatch.setenv("EPOCHAL_POSTGRES_USER", space.server.user)


def run(spark: SparkSession, world: World, space: Space, files: int = EPOCHS, **options: Any) -> None:
    """Let a stream write some epochs to the table `rows`."""
    if not world.source.exists():
        space.table("rows", "id bigint, file bigint, kind text, word text, epoch bigint")
    world.feed(files)
    queries.run(spark, world, space.sink(f"{space.name}.rows", name="files", **options))


def test_rows_with_their_epoch_are_exact_to_the_value_and_a_changed_one_is_found(
    spark: SparkSession, world: World, space: Space
) -> None:
    run(spark, world, space, **DIGESTED)
    assert is_exact(audited(world.checkpoint), EPOCHS * ROWS)

    space.execute(f"UPDATE {space.name}.rows SET word = 'changed' WHERE id = 7")
    (changed,) = audited(world.checkpoint)["sinks"]
    space.execute(f"DELETE FROM {space.name}.rows WHERE id = 7")
    (removed,) = audited(world.checkpoint)["sinks"]
    space.execute(f"INSERT INTO {space.name}.rows SELECT id, file, kind, word, 17 FROM {space.name}.rows WHERE id = 1")
    (foreign,) = audited(world.checkpoint)["sinks"]

    assert changed["verdict"] == removed["verdict"] == foreign["verdict"] == "differs"
    assert [one["epoch"] for one in changed["differences"]] == [1]
    assert "6 rows are there, but not those that were staged" in str(changed["differences"])
    assert "6 rows were staged and 5 are there" in str(removed["differences"])
    assert 17 in [one["epoch"] for one in foreign["differences"]]


def test_without_such_a_column_the_ledger_is_checked_and_the_audit_says_that_rows_were_not(
    spark: SparkSession, world: World, space: Space
) -> None:
    run(spark, world, space)
    (sink,) = audited(world.checkpoint)["sinks"]
    space.execute(f"DELETE FROM {space.ledger}.epochs WHERE epoch = 1")
    (gap,) = audited(world.checkpoint)["sinks"]

    assert sink["verdict"] == "not provable"
    assert "set epoch_column" in str(sink["not_provable"])
    assert gap["verdict"] == "differs"
    assert [one["epoch"] for one in gap["differences"]] == [1]
