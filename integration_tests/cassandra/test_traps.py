"""What silently breaks a replay in Cassandra, one test each; the names are those of the traps."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import FencedOut, Refused
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.sink import CassandraSink
from epochal.txn.model import Attempt, Handle, Outcome
from integration_tests.cassandra.tables import LINEAGE, Keyspace, stage, write
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Zombie:
    """A commit that passed its checks long ago and writes only now: nothing of the sink's can stop it any more."""

    def __init__(self, sink: CassandraSink, attempt: Attempt, handle: Handle, folder: Path) -> None:
        self._sink, self._attempt, self._epoch = sink, attempt, StagedEpoch.read(handle)
        self._home = Path(sink._home(attempt))
        self._copy = folder / "asleep"
        shutil.copytree(self._home, self._copy)

    def wake(self) -> None:
        shutil.copytree(self._copy, self._home, dirs_exist_ok=True)
        committer = self._sink._committer()
        todo = committer._todo(self._attempt, self._epoch)
        assert todo
        committer._run(self._attempt, self._epoch, todo)


def pairs(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "id int, a int, b string") -> DataFrame:
    return spark.createDataFrame(list(rows), schema).coalesce(1)


@pytest.fixture
def table(space: Keyspace) -> str:
    return space.table("t", "id int PRIMARY KEY, a int, b text")


@pytest.fixture
def sink(space: Keyspace, table: str, tmp_path: Path) -> CassandraSink:
    return space.sink(table, staging=str(tmp_path / "staged"))


def seen(space: Keyspace, table: str, columns: str = "id, a, b") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in space.execute(f"SELECT {columns} FROM {table}"))


def test_a_replay_of_an_older_epoch_after_a_newer_one_leaves_the_newer(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "old"), (2, 1, "old")))
    zombie = Zombie(sink, attempt, handle, tmp_path)
    sink.commit(attempt, handle)
    write(sink, 1, pairs(spark, (1, 2, "new")))
    zombie.wake()

    assert seen(space, table) == [(1, 2, "new"), (2, 1, "old")]


def test_a_null_of_a_newer_epoch_hides_the_value_of_an_older_one(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    write(sink, 0, pairs(spark, (1, 1, "old")))
    write(sink, 1, pairs(spark, (1, 2, None)))

    assert seen(space, table) == [(1, 2, None)]


def test_an_unset_null_leaves_the_column_alone(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    sink = space.sink(table, staging=str(tmp_path / "staged"), nulls="unset")
    write(sink, 0, pairs(spark, (1, 1, "old")))
    write(sink, 1, pairs(spark, (1, 2, None)))

    assert seen(space, table) == [(1, 2, "old")]


def test_a_delete_and_a_later_insert_and_a_later_delete_each_win_in_turn(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    sink = space.sink(table, staging=str(tmp_path / "staged"), delete_when="op = 'D'", drop=["op"])
    schema = "id int, a int, b string, op string"
    views = []
    for epoch, op in enumerate("IDID"):
        write(sink, epoch, pairs(spark, (1, epoch, "x", op), schema=schema))
        views.append(seen(space, table, "id, a"))

    assert views == [[(1, 0)], [], [(1, 2)], []]


def test_timestamps_grow_with_the_epochs_and_keep_in_touch_with_the_clock(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    before = time.time_ns() // 1000
    stamps = [StagedEpoch.read(write(sink, epoch, pairs(spark, (1, epoch, "x")))[1]).stamp for epoch in range(3)]
    (cell,) = space.execute(f"SELECT writetime(a) AS at FROM {table}")

    assert before - 2 <= stamps[0] < stamps[1] < stamps[2] <= time.time_ns() // 1000
    assert cell.at == stamps[2] + 1


def test_a_driver_with_a_slow_clock_writes_after_one_with_a_fast_clock(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, tmp_path: Path, monkeypatch: Any
) -> None:
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 3_600 * 10**9)
    write(sink, 0, pairs(spark, (1, 1, "fast")))
    monkeypatch.undo()
    write(space.sink(table, staging=str(tmp_path / "staged")), 1, pairs(spark, (1, 2, "slow")))

    assert seen(space, table) == [(1, 2, "slow")]


def test_a_ttl_that_is_replayed_does_not_start_again(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    sink = space.sink(table, staging=str(tmp_path / "staged"), ttl=1000)
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))
    late = Handle(handle.version, {**handle.body, "expiry": int(time.time()) + 100})
    sink.commit(attempt, late)

    (cell,) = space.execute(f"SELECT ttl(a) AS left FROM {table}")
    assert 0 < cell.left <= 100


def test_a_row_whose_time_is_over_does_not_come_back(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    sink = space.sink(table, staging=str(tmp_path / "staged"), expires_at="at", drop=["at"])
    schema = "id int, a int, b string, at timestamp"
    rows = spark.sql(
        "SELECT 1 AS id, 1 AS a, 'soon' AS b, current_timestamp() + INTERVAL 3 SECONDS AS at "
        "UNION ALL SELECT 2, 1, 'never', NULL"
    )
    assert rows.schema.simpleString() == f"struct<{schema.replace(' ', ':').replace(',:', ',')}>"
    attempt, handle = stage(sink, 0, rows.coalesce(1).cache())
    zombie = Zombie(sink, attempt, handle, tmp_path)
    sink.commit(attempt, handle)
    wait_until(lambda: seen(space, table, "id") == [(2,)], "the row's time to be over")
    zombie.wake()

    assert seen(space, table, "id, b") == [(2, "never")]


def test_the_tables_own_ttl_is_counted_from_staging_too(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    table = space.table("short", "id int PRIMARY KEY, a int, b text", "WITH default_time_to_live = 500")
    sink = space.sink(table, staging=str(tmp_path / "staged"))
    _, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))

    assert 490 < StagedEpoch.read(handle).expiry - time.time() <= 501  # type: ignore[operator]


def test_totals_are_exact_when_an_epoch_is_replayed_and_when_a_sleeper_wakes(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, n bigint, epochal text")
    sink = space.sink(
        table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum", "n": "count"}, drop=["b"]
    )
    attempt, handle = stage(sink, 0, pairs(spark, (1, 10, ""), (1, 5, ""), (2, 1, "")))
    zombie = Zombie(sink, attempt, handle, tmp_path)
    sink.commit(attempt, handle)
    zombie.wake()  # the same epoch once more
    after_replay = seen(space, table, "id, a, n")
    write(sink, 1, pairs(spark, (1, 100, "")))
    zombie.wake()  # and after a newer one

    assert after_replay == [(1, 15, 2), (2, 1, 1)]
    assert seen(space, table, "id, a, n") == [(1, 115, 3), (2, 1, 1)]


def test_totals_of_another_stream_are_not_added_to(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint, epochal text")
    space.execute(f"INSERT INTO {table} (id, a, epochal) VALUES (1, 7, 'somebody@3')")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"}, drop=["b"])
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "")))

    with pytest.raises(Refused, match="accumulated by another stream"):
        sink.commit(attempt, handle)
    assert seen(space, table, "id, a") == [(1, 7)]


def test_a_total_without_its_mark_column_is_told_what_to_add(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("totals", "id int PRIMARY KEY, a bigint")
    sink = space.sink(table, staging=str(tmp_path / "staged"), mode="accumulate", totals={"a": "sum"}, drop=["b"])

    with pytest.raises(Exception, match=f'ALTER TABLE "{space.name}"."totals" ADD epochal text'):
        stage(sink, 0, pairs(spark, (1, 1, "")))


def test_a_stream_whose_place_was_taken_commits_no_more(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))
    sink.enrol("another", adopts=LINEAGE)

    with pytest.raises(FencedOut, match="another stream, another, has taken this one's place"):
        sink.commit(attempt, handle)
    assert seen(space, table) == []


def test_what_was_written_of_an_epoch_is_not_written_again(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))
    (name, _, _) = StagedEpoch.read(handle).files[0]
    sink._ledger().note_part(LINEAGE, 0, f"{attempt.generation}/{name}")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert seen(space, table) == []  # it trusts its note


def test_many_rows_are_all_there_or_the_commit_has_failed(spark: SparkSession, space: Keyspace, tmp_path: Path) -> None:
    table = space.table("many", "id bigint PRIMARY KEY, text text")
    sink = space.sink(table, staging=str(tmp_path / "staged"), in_flight=256)
    write(sink, 0, spark.range(100_000).selectExpr("id", "repeat('x', 20) AS text"))
    (count,) = space.execute(f"SELECT count(*) AS n FROM {table}")

    assert count.n == 100_000
