"""What others do to a table or to staged files while an epoch waits: never a corrupt table, never a lost row."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from epochal import DataLost, DeltaSink, Refused
from epochal.txn.model import Outcome
from integration_tests.delta.tables import (
    LINEAGE,
    OTHER,
    attempt,
    by_delta,
    engines,
    files_of,
    ids,
    make,
    numbers,
    staged,
    staged_files,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Waiting:
    """A table with one epoch in it, and the next one staged."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.sink = DeltaSink(str(path))
        write(self.sink, 0, numbers(spark, 1))
        self.handle = staged(self.sink, attempt(1), numbers(spark, 2))

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=f"delta.`{self.path}`"))

    def commit(self) -> Outcome:
        return DeltaSink(str(self.path)).commit(attempt(1), self.handle)


@pytest.fixture
def waiting(spark: SparkSession, tmp_path: Path) -> Waiting:
    return Waiting(spark, tmp_path / "table")


def test_a_staged_file_that_is_deleted_stops_the_commit(waiting: Waiting) -> None:
    staged_files(waiting.path)[0].unlink()
    before = DeltaTable(waiting.path).version()

    with pytest.raises(DataLost, match="is neither there nor staged"):
        waiting.commit()
    assert DeltaTable(waiting.path).version() == before
    assert ids(waiting.spark, waiting.path) == [1]


def test_a_staged_file_that_is_cut_short_stops_the_commit(waiting: Waiting) -> None:
    file = staged_files(waiting.path)[0]
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DataLost, match="should have"):
        waiting.commit()
    assert ids(waiting.spark, waiting.path) == [1]


def test_vacuum_leaves_staged_files_alone(waiting: Waiting) -> None:
    waiting.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        waiting.sql("VACUUM {t} RETAIN 0 HOURS")
    finally:
        waiting.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    DeltaTable(waiting.path).vacuum(0, dry_run=False, enforce_retention_duration=False)

    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_what_vacuum_takes_between_the_link_and_the_log_is_linked_again(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(name: str) -> None:
        if name == "before-log":
            raise OSError("the driver is gone")

    with monkeypatch.context() as patch:
        patch.setattr("epochal.txn.failpoints.hit", crash)
        with pytest.raises(OSError, match="the driver is gone"):
            waiting.commit()
    linked = files_of(waiting.path)
    DeltaTable(waiting.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    assert len(linked) == 2
    assert len(files_of(waiting.path)) == 1
    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def vacuum(path: Path) -> None:
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def test_what_vacuum_takes_just_before_the_log_names_it_is_linked_again(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(name: str) -> None:
        if name == "before-log":
            vacuum(waiting.path)
            assert len(files_of(waiting.path)) == 1

    with monkeypatch.context() as patch:
        patch.setattr("epochal.txn.failpoints.hit", meddle)
        outcome = waiting.commit()

    assert outcome is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]
    assert staged_files(waiting.path) == []


def test_what_vacuum_took_before_a_crash_is_linked_again_by_the_next_try(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(name: str) -> None:
        if name == "before-log":
            vacuum(waiting.path)
        if name == "after-log":
            raise OSError("the driver is gone")

    with monkeypatch.context() as patch:
        patch.setattr("epochal.txn.failpoints.hit", meddle)
        with pytest.raises(OSError, match="the driver is gone"):
            waiting.commit()
    lost = len(files_of(waiting.path))

    assert lost == 1
    assert waiting.commit() is Outcome.ALREADY_COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]
    assert staged_files(waiting.path) == []


def test_a_file_that_was_taken_with_its_staged_copy_is_told(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def meddle(name: str) -> None:
        if name == "before-log":
            vacuum(waiting.path)
            staged_files(waiting.path)[0].unlink()

    monkeypatch.setattr("epochal.txn.failpoints.hit", meddle)

    with pytest.raises(DataLost, match="the table's log names it"):
        waiting.commit()


def test_a_file_that_was_deleted_and_vacuumed_since_is_not_put_back(waiting: Waiting) -> None:
    copy = waiting.path.parent / "copy"
    shutil.copytree(waiting.path / "_epochal", copy)
    waiting.commit()
    waiting.sql("DELETE FROM {t} WHERE id = 2")
    vacuum(waiting.path)
    shutil.copytree(copy, waiting.path / "_epochal", dirs_exist_ok=True)  # as if its cleanup had not come about

    assert waiting.commit() is Outcome.ALREADY_COMMITTED
    assert len(files_of(waiting.path)) == 1
    assert ids(waiting.spark, waiting.path) == [1]


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_the_log_names_is_never_replaced(waiting: Waiting, *, removed: bool) -> None:
    (named,) = files_of(waiting.path)
    if removed:
        waiting.sql("DELETE FROM {t} WHERE id = 1")  # it is still there for those who read an older version
    files = waiting.handle.body["files"]
    assert isinstance(files, list)
    assert isinstance(files[0], dict)
    files[0]["name"] = named
    before = (waiting.path / named).read_bytes()

    with pytest.raises(DataLost, match="the table's log has another file of that name"):
        waiting.commit()
    assert (waiting.path / named).read_bytes() == before
    assert ids(waiting.spark, waiting.path) == ([] if removed else [1])


def test_a_file_of_a_forgotten_start_under_the_same_name_is_replaced(waiting: Waiting) -> None:
    files = waiting.handle.body["files"]
    assert isinstance(files, list)
    assert isinstance(files[0], dict)
    (waiting.path / str(files[0]["name"])).write_bytes(b"of a start whose journal is gone")

    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_file_is_young_enough_for_vacuum_when_the_log_names_it(waiting: Waiting) -> None:
    long_ago = time.time() - 30 * 24 * 3600
    for file in staged_files(waiting.path):
        os.utime(file, (long_ago, long_ago))
    waiting.commit()

    assert all(time.time() - (waiting.path / name).stat().st_mtime < 3600 for name in files_of(waiting.path))


def test_a_constraint_that_the_rows_keep_is_checked_by_delta(waiting: Waiting) -> None:
    waiting.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 5)")

    assert waiting.commit() is Outcome.COMMITTED
    assert engines(waiting.path)[0] == "Delta"
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_constraint_that_the_rows_break_holds_them_back_until_it_is_gone(waiting: Waiting) -> None:
    waiting.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 2)")
    with pytest.raises(Refused, match="Delta refuses its rows"):
        waiting.commit()
    held = ids(waiting.spark, waiting.path)
    waiting.sql("ALTER TABLE {t} DROP CONSTRAINT small")

    assert held == [1]
    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_column_that_is_dropped_holds_the_rows_back(waiting: Waiting) -> None:
    waiting.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode'='name')")
    waiting.sql("ALTER TABLE {t} DROP COLUMN word")

    with pytest.raises(Refused, match="Delta refuses its rows"):
        waiting.commit()
    assert sum(by_delta(waiting.spark, waiting.path).values()) == 1
    assert staged_files(waiting.path) != []


def test_a_column_that_is_added_stays_null(waiting: Waiting) -> None:
    waiting.sql("ALTER TABLE {t} ADD COLUMN more bigint")

    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_harmless_property_changes_nothing(waiting: Waiting) -> None:
    waiting.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration'='interval 60 days')")

    assert waiting.commit() is Outcome.COMMITTED
    assert engines(waiting.path)[0] == "delta-rs"


def test_a_table_that_is_gone_stops_the_commit(waiting: Waiting) -> None:
    shutil.rmtree(waiting.path / "_delta_log")

    with pytest.raises(DataLost, match="no Delta table"):
        waiting.commit()


def test_appends_deletes_and_optimize_beside_the_stream_are_no_conflict(waiting: Waiting) -> None:
    waiting.sql("INSERT INTO {t} VALUES (10, 'other'), (11, 'other')")
    waiting.sql("DELETE FROM {t} WHERE id = 1")
    waiting.sql("OPTIMIZE {t}")
    write(DeltaSink(str(waiting.path)), 0, numbers(waiting.spark, 20), lineage=OTHER)

    assert waiting.commit() is Outcome.COMMITTED
    assert ids(waiting.spark, waiting.path) == [2, 10, 11, 20]
    assert waiting.commit() is Outcome.ALREADY_COMMITTED


def test_abort_after_the_commit_takes_nothing_from_the_table(waiting: Waiting) -> None:
    waiting.commit()
    waiting.sink.abort(attempt(1), waiting.handle)
    waiting.sink.abort(attempt(1, generation=2), None)

    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_slow_twin_that_finds_its_files_moved_sees_that_the_epoch_is_in(waiting: Waiting) -> None:
    twin = DeltaSink(str(waiting.path))
    twin.open(LINEAGE)  # it has read the table before the other commits
    waiting.commit()

    assert twin.commit(attempt(1), waiting.handle) is Outcome.ALREADY_COMMITTED
    assert ids(waiting.spark, waiting.path) == [1, 2]


def test_a_transaction_id_that_expired_is_found_in_the_history(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(spark, table, "id bigint, word string")
    sink = DeltaSink(str(table))
    epoch = attempt(0)
    handle = staged(sink, epoch, numbers(spark, 1))
    kept = tmp_path / "kept"
    shutil.copytree(table / "_epochal", kept)
    sink.commit(epoch, handle)
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.setTransactionRetentionDuration'='interval 0 seconds')"
    )
    shutil.copytree(kept, table / "_epochal", dirs_exist_ok=True)

    assert DeltaSink(str(table)).commit(epoch, handle) is Outcome.ALREADY_COMMITTED
    assert DeltaSink(str(table)).open(LINEAGE).last == 0
    assert sum(by_delta(spark, table).values()) == 1
