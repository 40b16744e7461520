"""Stores that go away and come back, and data that is lost behind the protocol's back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal.cli
from epochal import DataLost, EpochWriter, NotSettled, Refused
from epochal.spark_plugins.writer import Commit
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Handle
from integration_tests.spark.checks import check_at_the_end, committed, visible_files, visible_rows
from integration_tests.spark.queries import Meddled, archive, run, start
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Outage:
    """A store that does not answer until it is mended."""

    def __init__(self) -> None:
        self.tries = 0
        self._mended = threading.Event()

    def mend(self) -> None:
        self._mended.set()

    def __call__(self, attempt: Attempt, handle: Handle) -> None:
        self.tries += 1
        if not self._mended.is_set():
            raise ConnectionRefusedError("the store is down")


def staged_files(world: World, attempt: Attempt, handle: Handle) -> list[Path]:
    home = world.first / "_epochal" / "staged" / attempt.lineage / attempt.key
    moves = handle.body["files"]
    assert isinstance(moves, list)
    return [home / str(move[0]) for move in moves if isinstance(move, list)]


@pytest.mark.parametrize("commit", ["checkpoint", "eager"])
def test_a_store_that_is_down_holds_the_stream_and_loses_nothing(
    spark: SparkSession, world: World, commit: Commit
) -> None:
    outage = Outage()
    world.feed(4)
    query = start(spark, world, EpochWriter(Meddled(archive(world), outage), commit=commit))
    wait_until(lambda: outage.tries > 3, "the store to be tried")
    planned_in_outage, seen_in_outage = committed(world), visible_files(world.first)
    outage.mend()
    query.awaitTermination()

    # The epoch after the one that waits is held before it is staged; eager commits hold the epoch itself.
    assert planned_in_outage == ({0} if commit == "checkpoint" else set())
    assert seen_in_outage == []
    check_at_the_end(world, files=4)


def test_more_epochs_may_wait_if_max_pending_says_so(spark: SparkSession, world: World) -> None:
    outage = Outage()
    world.feed(5)
    query = start(spark, world, EpochWriter(Meddled(archive(world), outage), max_pending=3))
    wait_until(lambda: committed(world) == {0, 1, 2} and outage.tries > 9, "three epochs to wait")
    planned_in_outage = committed(world)
    outage.mend()
    query.awaitTermination()

    assert planned_in_outage == {0, 1, 2}
    check_at_the_end(world, files=5)


def status(world: World, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of `epochal status`, and its first line."""
    capsys.readouterr()
    code = epochal.cli.main(["status", str(world.checkpoint)])
    return code, capsys.readouterr().out.splitlines()[0]


def test_stop_while_held_returns_and_says_what_is_not_settled(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    outage = Outage()
    world.feed(3)
    query = start(spark, world, EpochWriter(Meddled(archive(world), outage), settle_timeout=0.5))
    wait_until(lambda: committed(world) == {0} and outage.tries > 3, "the stream to be held")
    wait_until(lambda: "HELD" in status(world, capsys)[1], "the live file to say so")
    code, line = status(world, capsys)
    assert code == 4
    assert "sink 'files' has not shown epoch 0 for" in line
    assert "ConnectionRefusedError: the store is down. Start the store; the driver (pid" in line

    with pytest.raises(NotSettled, match=r"the store is down.*decided and safe"):
        query.stop()
    assert not query.isActive
    assert visible_files(world.first) == []
    assert status(world, capsys) == (
        4,
        f"stopped: epoch 0 is checkpointed but not visible in 'files'. Run `epochal recover {world.checkpoint}`",
    )
    run(spark, world)
    assert status(world, capsys) == (0, "stopped and settled: epoch 2 is visible everywhere; nothing to do")
    check_at_the_end(world, files=3)


def test_the_end_of_a_query_says_what_is_not_settled(spark: SparkSession, world: World) -> None:
    outage = Outage()
    world.feed(1)
    query = start(spark, world, EpochWriter(Meddled(archive(world), outage), settle_timeout=0.5))

    with pytest.raises(NotSettled, match="the store is down"):
        query.awaitTermination()
    assert visible_files(world.first) == []
    run(spark, world)
    check_at_the_end(world, files=1)


def test_staged_files_that_were_deleted_stop_the_query_loudly(spark: SparkSession, world: World) -> None:
    def lose(attempt: Attempt, handle: Handle) -> None:
        for file in staged_files(world, attempt, handle):
            file.unlink(missing_ok=True)

    world.feed(3)
    query = start(spark, world, EpochWriter(Meddled(archive(world), lose)))

    with pytest.raises(DataLost, match="neither published nor staged"):
        query.awaitTermination()
    assert visible_files(world.first) == []
    assert max(committed(world)) < 2, "the query went on after rows were lost"


def test_an_idle_query_stops_when_staged_files_were_deleted(spark: SparkSession, world: World) -> None:
    def lose(attempt: Attempt, handle: Handle) -> None:
        for file in staged_files(world, attempt, handle):
            file.unlink(missing_ok=True)

    world.feed(1)
    query = start(spark, world, EpochWriter(Meddled(archive(world), lose)), processingTime="50 milliseconds")

    with pytest.raises(DataLost, match="neither published nor staged"):
        query.awaitTermination()
    assert not query.isActive


def test_rows_that_executors_wrote_elsewhere_are_missed(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a cluster whose nodes have disks of their own under the same path.
    elsewhere = f"file:{world.root}/elsewhere"
    monkeypatch.setattr("epochal.sinks.files.stage.writing.spark_path", lambda path: elsewhere + path)
    world.feed(2)
    query = start(spark, world, EpochWriter(archive(world)))

    with pytest.raises(Refused, match="the same file system"):
        query.awaitTermination()
    assert committed(world) == set()


def test_rows_of_which_executors_wrote_a_part_elsewhere_are_missed(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = LocalFiles.walk
    monkeypatch.setattr(LocalFiles, "walk", lambda files, path: list(listed(files, path))[:-1])
    world.feed(2)
    query = start(spark, world, EpochWriter(archive(world, max_rows_per_file=2)))

    with pytest.raises(Refused, match="not all of them"):
        query.awaitTermination()
    assert committed(world) == set()


def test_another_file_under_a_published_name_stops_the_query(spark: SparkSession, world: World) -> None:
    def replace(attempt: Attempt, handle: Handle) -> None:
        moves = handle.body["files"]
        assert isinstance(moves, list)
        for move in moves:
            assert isinstance(move, list)
            (world.first / str(move[1])).write_bytes(b"not ours")

    world.feed(2)
    query = start(spark, world, EpochWriter(Meddled(archive(world), replace)))

    with pytest.raises(DataLost, match="another file with 8 bytes has its name"):
        query.awaitTermination()
    assert [file.read_bytes() for file in visible_files(world.first)] == [b"not ours"]


def test_an_epoch_that_was_lost_stays_refused_until_it_is_back(spark: SparkSession, world: World) -> None:
    kept: dict[Path, bytes] = {}

    def lose(attempt: Attempt, handle: Handle) -> None:
        for file in staged_files(world, attempt, handle):
            if file.exists():
                kept[file] = file.read_bytes()
                file.unlink()

    world.feed(2)
    with pytest.raises(DataLost):
        run(spark, world, Meddled(archive(world), lose))
    with pytest.raises(DataLost):
        run(spark, world)
    for file, data in kept.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    run(spark, world)

    check_at_the_end(world, files=2)


def test_a_journal_that_is_down_holds_the_stream_too(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = threading.Event()
    tries = []
    create = LocalFiles.create

    def creating(self: LocalFiles, path: str, data: bytes, *, durable: bool = True) -> bool:
        if path.endswith(".decided.json") and not mended.is_set():
            tries.append(path)
            raise OSError("the journal's disk is away")
        return create(self, path, data, durable=durable)

    monkeypatch.setattr(LocalFiles, "create", creating)
    world.feed(3)
    query = start(spark, world, EpochWriter(archive(world)))
    wait_until(lambda: len(tries) > 3, "the journal to be tried")
    planned_in_outage = committed(world)
    mended.set()
    query.awaitTermination()

    assert planned_in_outage == {0}
    check_at_the_end(world, files=3)


def test_rows_wait_unseen_in_the_journal_until_the_store_is_back(spark: SparkSession, world: World) -> None:
    outage = Outage()
    world.feed(2)
    with pytest.raises(NotSettled):
        start(
            spark, world, EpochWriter(Meddled(archive(world), outage), settle_timeout=0.3, max_pending=2)
        ).awaitTermination()

    view = Journal(LocalFiles(), str(world.journal)).read()
    assert view.waiting() == [0, 1]
    assert visible_rows(world.first) == all_rows(0)
