"""What silently breaks a replay in Cassandra, one test each; the names are those of the traps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import BadRows, FencedOut, Refused, Tuning
from epochal.sinks.cassandra import ledger
from epochal.sinks.cassandra.cluster import limits
from epochal.sinks.cassandra.cluster.connection import connect
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.sink import CassandraSink
from epochal.testing.contract import claim_for
from epochal.txn.model import Attempt, Batch, Handle, Outcome
from integration_tests.cassandra.tables import LINEAGE, Keyspace, Zombie, pairs, seen, stage, write
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(space: Keyspace) -> str:
    return space.table("t", "id int PRIMARY KEY, a int, b text")


@pytest.fixture
def sink(space: Keyspace, table: str, tmp_path: Path) -> CassandraSink:
    return space.sink(table, staging=str(tmp_path / "staged"))


def clock_ahead(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Whoever stages from now on takes the time for later than it is."""
    monkeypatch.setattr(ledger, "micros", lambda milliseconds: (milliseconds + seconds * 1000) * 1000)


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
    before = time.time_ns() // 10**6 * 1000  # a server tells its time in milliseconds
    stamps = [StagedEpoch.read(write(sink, epoch, pairs(spark, (1, epoch, "x")))[1]).stamp for epoch in range(3)]
    (cell,) = space.execute(f"SELECT writetime(a) AS at FROM {table}")

    assert before - 2 <= stamps[0] < stamps[1] < stamps[2] <= time.time_ns() // 1000
    assert cell.at == stamps[2] + 1


def test_a_driver_with_a_slow_clock_writes_after_one_with_a_fast_clock(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, tmp_path: Path, monkeypatch: Any
) -> None:
    clock_ahead(monkeypatch, 3_600)
    write(sink, 0, pairs(spark, (1, 1, "fast")))
    monkeypatch.undo()
    write(space.sink(table, staging=str(tmp_path / "staged")), 1, pairs(spark, (1, 2, "slow")))

    assert seen(space, table) == [(1, 2, "slow")]


def test_an_epoch_that_still_waits_is_older_for_a_driver_with_a_slow_clock(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, tmp_path: Path, monkeypatch: Any
) -> None:
    clock_ahead(monkeypatch, 3_600)
    waiting = stage(sink, 0, pairs(spark, (1, 1, "fast")))
    monkeypatch.undo()
    restarted = space.sink(table, staging=str(tmp_path / "staged"))
    next_one = stage(restarted, 1, pairs(spark, (1, 2, "slow")), generation=2)
    for attempt, handle in (waiting, next_one):
        restarted.commit(attempt, handle)

    assert seen(space, table) == [(1, 2, "slow")]


def test_of_two_attempts_at_an_epoch_the_next_epoch_is_later_than_both(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, tmp_path: Path, monkeypatch: Any
) -> None:
    again = space.sink(table, staging=str(tmp_path / "staged"))
    stage(again, 0, pairs(spark, (1, 2, "slow")), generation=2)
    clock_ahead(monkeypatch, 3_600)
    fast = stage(sink, 0, pairs(spark, (1, 1, "fast")))  # the older driver wakes, prepares and wins
    monkeypatch.undo()
    next_one = stage(again, 1, pairs(spark, (1, 3, "next")), generation=2)
    for attempt, handle in (fast, next_one):
        again.commit(attempt, handle)

    assert seen(space, table) == [(1, 3, "next")]


def test_who_takes_a_streams_place_writes_after_it_whatever_the_clocks_say(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str, monkeypatch: Any
) -> None:
    clock_ahead(monkeypatch, 3_600)
    write(sink, 0, pairs(spark, (1, 1, "fast")))
    monkeypatch.undo()
    sink = space.sink(table, staging=sink.describe()["staging"])
    claim_for(sink, "another", replaces=(LINEAGE,))
    attempt = Attempt("another", 0, 1)
    batch = Batch(attempt=attempt, rows=pairs(spark, (1, 2, "slow")), offsets="f")
    sink.commit(attempt, sink.stage(batch).handle)

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


@pytest.mark.parametrize("ahead", [-900, 900])
def test_a_ttl_is_counted_by_the_servers_clock_whatever_the_drivers_says(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path, monkeypatch: Any, ahead: int
) -> None:
    sink = space.sink(table, staging=str(tmp_path / "staged"), ttl=1000)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    write(sink, 0, pairs(spark, (1, 1, "x")))
    monkeypatch.undo()

    (cell,) = space.execute(f"SELECT ttl(a) AS left FROM {table}")
    assert 900 < cell.left <= 1000


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


def test_a_stream_whose_place_was_taken_commits_no_more(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))
    claim_for(sink, "another", replaces=(LINEAGE,))

    with pytest.raises(FencedOut, match="another stream, another, has taken this one's place"):
        sink.commit(attempt, handle)
    assert seen(space, table) == []


def test_a_table_that_was_made_anew_with_other_types_is_refused_and_one_with_the_same_is_written(
    spark: SparkSession, space: Keyspace, sink: CassandraSink, table: str
) -> None:
    attempt, handle = stage(sink, 0, pairs(spark, (1, 1, "x")))
    space.execute(f"DROP TABLE {table}")
    space.table("t", "id int PRIMARY KEY, a float, b text")  # as many bytes as an int has: nobody else would notice
    with pytest.raises(Refused, match="made anew since epoch 0 was staged, and a was int and is float"):
        sink.commit(attempt, handle)
    space.execute(f"DROP TABLE {table}")
    space.table("t", "id int PRIMARY KEY, a int, b text")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert seen(space, table) == [(1, 1, "x")]


def test_a_ttl_that_the_server_cannot_hold_is_refused_while_staging(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    server = space.sink(table, staging=str(tmp_path / "staged"), ttl="7000 days")
    with pytest.raises(Refused, match="expire after 2038-01-18, which this server cannot hold"):
        stage(server, 0, pairs(spark, (1, 1, "x")))
    rows = pairs(spark, (1, 1, "x")).selectExpr("*", "timestamp'2038-02-01 00:00:00' AS at")

    with pytest.raises(BadRows, match="a row expires after 2038-01-18, which this server cannot hold"):
        stage(space.sink(table, staging=str(tmp_path / "staged"), expires_at="at", drop=["at"]), 0, rows)


def test_a_row_that_the_servers_commit_log_cannot_hold_is_refused_while_staging(
    spark: SparkSession, space: Keyspace, tmp_path: Path
) -> None:
    table = space.table("wide", "id bigint PRIMARY KEY, text text")
    sink = space.sink(table, staging=str(tmp_path / "staged"), tuning=Tuning(max_row_bytes=1 << 30))
    largest = limits.largest_row(connect(sink._endpoint))
    assert largest is not None
    with pytest.raises(BadRows, match=f"a row has more than {largest} bytes"):
        stage(sink, 0, spark.range(1).selectExpr("id", f"repeat('x', {largest}) AS text"))
    write(sink, 0, spark.range(1).selectExpr("id", f"repeat('x', {largest - 8}) AS text"))

    assert seen(space, table, "id") == [(0,)]


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
    sink = space.sink(table, staging=str(tmp_path / "staged"), tuning=Tuning(in_flight=256))
    write(sink, 0, spark.range(100_000).selectExpr("id", "repeat('x', 20) AS text"))
    (count,) = space.execute(f"SELECT count(*) AS n FROM {table}")

    assert count.n == 100_000


def test_a_staged_file_that_is_gone_refuses_the_epoch(
    spark: SparkSession,
    space: Keyspace,
    sink: CassandraSink,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(name: str) -> None:
        if name == "after-write":
            files = sorted((tmp_path / "staged").rglob("part-*.parquet"))
            assert len(files) > 1
            files[0].unlink()

    monkeypatch.setattr("epochal.txn.failpoints.hit", lose)

    with pytest.raises(Refused, match=r"not all rows that Spark wrote .* the same file system"):
        stage(sink, 0, pairs(spark, *((number, number, "new") for number in range(20))))
    assert seen(space, table) == []


def test_a_frame_is_compared_with_the_live_table_before_anything_is_written(
    spark: SparkSession, space: Keyspace, table: str, tmp_path: Path
) -> None:
    staging = str(tmp_path / "staged")
    frame = pairs(spark, (1, 1, "x"))
    fits = space.sink(table, staging=staging, order_by=["a"], delete_when="b = 'gone'")
    lacks = space.sink(table, staging=staging, order_by=["at"], drop=["opp"])
    garbled = space.sink(table, staging=staging, delete_when="nope = 1")

    assert fits.check_frame(frame) == []
    assert lacks.check_frame(frame.selectExpr("a", "'1' AS b", "id AS idd")) == [
        "id: part of the primary key, and not in the frame",
        "idd: not in the table; did you mean 'id'?",
        "order_by: 'at' is not in the frame; did you mean 'a'?",
        "opp: named in an option, and not in the frame",
    ]
    assert "nope" in garbled.check_frame(frame)[0]
    assert not (tmp_path / "staged").exists()
