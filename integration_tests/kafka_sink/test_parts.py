"""Epochs that are many transactions: each part once, whatever dies in between, and after them the epoch's mark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from epochal import DataLost, KafkaSink, Refused, TwoJournals
from epochal.participant import Attempt, Batch, Expected, Handle, Outcome, RowDigest, Scope, failpoints
from epochal.sinks.kafka.layout import transactional_id
from epochal.testing.contract import claim_for
from epochal.testing.servers import KafkaCluster
from epochal.txn.audit_comparison import compare_with_store
from integration_tests.kafka_sink import test_contract
from integration_tests.kafka_sink.checks import check_a_stalled_driver, check_after_a_kill, check_at_the_end, visible
from integration_tests.kafka_sink.consuming import Target
from integration_tests.kafka_sink.epochs import LINEAGE, Commit, committed, stage, write
from integration_tests.spark.audits import check_all_exact
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.children import Children
from integration_tests.spark.driver import IN_PARTS, Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

THEIRS = "c0ffee00-0000-0000-0000-000000000002"
NUMBERS = [*range(18)]
# Of a commit that no Spark helps: lane after lane, in one process.
CHAIN = (
    "before-lanes",
    "after-lanes",
    "before-part-transaction@2",
    "after-part-transaction@2",
    "before-part-transaction",  # after a part that is there
    "before-mark",  # all parts are there, the epoch is not
    "before-transaction",
)
# Of drivers, whose executors send the parts.
OF_DRIVERS = (
    "before-lanes",
    "after-lanes",
    "before-mark",
    "after-mark@2",
    "before-transaction",
    "after-transaction@2",
    "before-done",
)
IN_WORKERS = ("before-part-transaction", "after-part-transaction")


@pytest.fixture
def sink(target: Target, tmp_path: Path) -> KafkaSink:
    """About two messages a transaction, in two lanes."""
    return in_parts(target, tmp_path)


def in_parts(target: Target, home: Path, **options: Any) -> KafkaSink:
    given = {"digest": True, "transaction_timeout": "20 s", "staging": str(home / "staged"), **IN_PARTS, **options}
    return target.sink(**given)


def in_files(spark: SparkSession, files: int = 3) -> DataFrame:
    return spark.range(len(NUMBERS)).selectExpr("id AS number", "'x' AS word").repartition(files)


def numbers(target: Target) -> list[int]:
    return sorted(json.loads(message.value() or b"")["number"] for message in target.messages())


def order_for(sink: KafkaSink, attempt: Attempt, handle: Handle, folder: Path) -> Path:
    facts = {"description": sink.describe(), "lineage": attempt.lineage, "handle": handle.to_json()}
    order = folder / "order"
    order.write_text(json.dumps(facts))
    return order


def committing(order: Path, points: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "integration_tests.kafka_sink.committer", str(order)]
    environment = {**os.environ, failpoints.VARIABLE: points}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_an_epoch_in_parts_is_there_once_and_the_audit_proves_it(
    spark: SparkSession, target: Target, sink: KafkaSink
) -> None:
    expected = {}
    for epoch, files in enumerate((3, 1)):
        attempt, handle = stage(sink, epoch, in_files(spark, files))
        expected[epoch] = RowDigest(len(NUMBERS), str(handle.body["digest"]))

        assert sink.commit(attempt, handle) is Outcome.COMMITTED
        assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED
    attempt, handle = stage(sink, 2, in_files(spark).limit(0))
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    scope = Scope(lineage=LINEAGE, expected=Expected(since=0, epochs=expected, through=1))
    found = compare_with_store(scope.expected, sink.audit(scope))

    assert numbers(target) == sorted(2 * NUMBERS)
    assert sink.open(LINEAGE).last == 2
    assert found.verdict.value == "exact", found


@pytest.mark.parametrize("first", [True, False])
def test_a_staged_file_that_is_none_any_more_is_lost_by_name_and_nothing_of_it_is_sent(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path, first: bool
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    files = sorted(tmp_path.glob("staged/*/*/data/*.parquet"))
    damaged = files[0] if first else files[-1]  # Spark takes the columns from the first
    whole = damaged.read_bytes()
    damaged.write_bytes(b"\0" * len(whole))

    with pytest.raises(DataLost) as lost:
        sink.commit(attempt, handle)
    assert f"sink {sink.name!r}: {damaged} cannot be read as the Parquet file that was staged" in str(lost.value)
    damaged.write_bytes(whole)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == NUMBERS


def test_a_commit_that_is_killed_goes_on_with_the_parts_that_are_missing(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    order = order_for(sink, attempt, handle, tmp_path)
    seen = [0]
    for point in CHAIN:
        name, _, hit = point.partition("@")
        killed = committing(order, f"{name}=kill@{hit or 1}")
        output = killed.communicate(timeout=120)[0]
        found = numbers(target)

        assert killed.returncode == -9, f"{point}: {output}"
        assert len({*found}) == len(found), f"{point}: a part is there twice"
        assert sink.open(LINEAGE).last == -1
        seen.append(len(found))
    # A rewound checkpoint, or a new one, is refused by it.
    assert sink.open(LINEAGE).begun == 0
    assert sink.open(THEIRS).others == {LINEAGE: 0}
    attempts = sink.commit(attempt, handle)

    assert seen == sorted(seen)
    assert 0 < seen[4] < len(NUMBERS), "whole parts, without those that were open"
    assert seen[-1] == len(NUMBERS)
    assert attempts is Outcome.COMMITTED
    assert numbers(target) == NUMBERS


def test_a_stream_whose_place_was_taken_can_end_no_part_of_an_epoch(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    gate = tmp_path / "gate"
    stalled = committing(order_for(sink, attempt, handle, tmp_path), f"before-part-transaction=pause:{gate}@2")
    wait_until(gate.exists, "the commit to come to its second part")
    claim_for(target.sink(), THEIRS, replaces=(LINEAGE,))  # whatever kind of transactions it has
    before = numbers(target)
    gate.unlink()
    output = stalled.communicate(timeout=120)[0]

    assert 0 < len(before) < len(NUMBERS)
    assert "has taken this one's place" in output
    assert numbers(target) == before


def test_a_task_that_dies_and_runs_again_sends_no_part_twice(drivers: Children, world: World, target: Target) -> None:
    """Spark's own sink sends the rows of such a task twice. A worker counts its own hits."""
    world.feed(2)
    retried = ("--master", "local[2,4]", "--conf", "spark.python.worker.reuse=true")
    arguments = ("--digest", "--sinks", "parts", "--topic", f"{target.bootstrap}/{target.topic}", *retried)
    ended = drivers.run(world.root, *arguments, points="after-part-transaction=kill@2")

    assert ended.ending is Ending.DONE, ended.output
    assert "Python worker exited unexpectedly" in ended.output
    assert " held: " not in ended.output
    check_at_the_end(world, target, files=2)
    check_all_exact(world.checkpoint, sinks=1, rows=2 * ROWS)


@pytest.mark.matrix
@pytest.mark.parametrize("point", IN_WORKERS)
def test_workers_that_die_again_and_again_lose_and_double_nothing(
    drivers: Children, world: World, target: Target, point: str
) -> None:
    world.feed(2)
    # A worker counts its own hits: each is killed at its second part, and a new one goes on.
    arguments = ("--digest", "--sinks", "parts", "--topic", f"{target.bootstrap}/{target.topic}")
    ended = drivers.run(world.root, *arguments, points=f"{point}=kill@2")

    assert ended.ending is Ending.DONE, ended.output
    assert " held: " in ended.output
    check_at_the_end(world, target, files=2)
    check_all_exact(world.checkpoint, sinks=1, rows=2 * ROWS)


# The long versions.


@pytest.mark.matrix
class TestKafkaInParts(test_contract.TestKafka):
    """The contract, with an epoch in several transactions."""

    def participant(self) -> KafkaSink:
        options: dict[str, Any] = {**IN_PARTS, "transaction_timeout": "20 s"}
        return self.target.sink(key="CAST(number AS STRING)", staging=str(self.staging), **options)

    def rows(self, numbers: Any) -> DataFrame:
        return super().rows(numbers).repartition(2)


@pytest.mark.matrix
def test_a_kill_around_every_step_of_drivers_shows_every_row_once_and_none_early(
    drivers: Children, world: World, target: Target
) -> None:
    arguments = ("--small-journal", "--sinks", "parts", "--topic", f"{target.bootstrap}/{target.topic}")

    def check() -> None:
        rows = visible(target)
        assert max(rows.values(), default=1) == 1, "rows are visible twice"

    files = killed_at_each(drivers, world, OF_DRIVERS, arguments, check)
    check_after_a_kill(world, target)
    check_at_the_end(world, target, files=files)


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["before-mark", "before-transaction"])
def test_a_driver_that_stalled_in_mid_commit_changes_nothing_when_it_wakes(
    spark: SparkSession, drivers: Children, world: World, target: Target, point: str
) -> None:
    check_a_stalled_driver(spark, drivers, world, target, "parts", point)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "later",
    [{"lanes": 1}, {"lanes": 7, "send_rate": 400}, {"transactions": "one", "lanes": None, "send_rate": 1000}],
    ids=["fewer", "more", "none"],
)
def test_an_epoch_that_is_half_sent_is_ended_as_it_was_begun_whatever_its_sink_is_told_since(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path, later: dict[str, Any]
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    killed = committing(order_for(sink, attempt, handle, tmp_path), "after-part-transaction=kill@3")
    killed.communicate(timeout=120)
    between, changed = numbers(target), in_parts(target, tmp_path, **later)
    claim_for(changed, LINEAGE)

    assert 0 < len(between) < len(NUMBERS)
    assert changed.commit(attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == NUMBERS
    write(changed, 1, in_files(spark))
    write(sink, 2, in_files(spark))
    assert numbers(target) == sorted(3 * NUMBERS)


@pytest.mark.matrix
def test_a_lane_that_another_process_takes_amid_a_part_costs_only_a_repeat(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    gate = tmp_path / "gate"
    points = f"before-part-transaction=pause:{gate}@3"
    stalled = committing(order_for(sink, attempt, handle, tmp_path), points)
    wait_until(gate.exists, "the commit to come to its third part")
    for lane in (0, 1):
        name = transactional_id(sink.place, LINEAGE, lane)
        Producer({"bootstrap.servers": target.bootstrap, "transactional.id": name}).init_transactions(30)
    gate.unlink()
    output = stalled.communicate(timeout=300)[0]

    assert output.splitlines()[-1] == "committed", output
    assert numbers(target) == NUMBERS


@pytest.mark.matrix
def test_a_topic_that_is_made_again_with_fewer_partitions_amid_an_epoch_gets_all_of_it(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    killed = committing(order_for(sink, attempt, handle, tmp_path), "after-part-transaction=kill@3")
    killed.communicate(timeout=120)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    (deleted,) = admin.delete_topics([target.topic]).values()
    deleted.result(30)
    wait_until(lambda: target.topic not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    broker.create_topic(target.topic, partitions=1)

    assert committed(sink, attempt, handle) is Outcome.COMMITTED
    assert numbers(target) == NUMBERS


@pytest.mark.matrix
def test_two_streams_in_one_topic_one_of_them_in_parts_keep_out_of_each_others_way(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    other = target.sink(staging=str(tmp_path / "other"), transaction_timeout="20 s")
    for one, lineage in ((sink, LINEAGE), (other, THEIRS)):
        claim_for(one, lineage)
    for epoch in range(3):
        orders = [
            (one, *stage(one, epoch, in_files(spark), lineage=of)) for one, of in ((sink, LINEAGE), (other, THEIRS))
        ]
        commits = [Commit(*order) for order in orders]
        for order, commit in zip(orders, commits, strict=True):
            assert commit.ended() is Outcome.COMMITTED or isinstance(commit.outcome, OSError)  # then it is tried again
            committed(*order)

    assert numbers(target) == sorted(6 * NUMBERS)
    assert (sink.open(LINEAGE).last, other.open(THEIRS).last) == (2, 2)


@pytest.mark.matrix
def test_half_an_epoch_lets_neither_a_rewound_checkpoint_nor_a_new_one_write_the_topic(
    drivers: Children, world: World, target: Target
) -> None:
    arguments = ("--sinks", "parts", "--topic", f"{target.bootstrap}/{target.topic}")
    world.feed(1)
    first = drivers.run(world.root, *arguments)
    older = shutil.copytree(world.checkpoint, world.root / "older")
    world.feed(2)
    killed = drivers.run(world.root, *arguments, points="before-mark=kill")
    newest = world.checkpoint.rename(world.root / "newest")
    shown = visible(target)
    older.rename(world.checkpoint)
    world.feed(3)
    rewound = drivers.run(world.root, *arguments, "--files-per-trigger", "2")
    planned_by_it = (world.checkpoint / "commits" / "1").exists()
    shutil.rmtree(world.checkpoint)
    fresh = drivers.run(world.root, *arguments)
    shutil.rmtree(world.checkpoint, ignore_errors=True)  # a start that is refused may leave none
    newest.rename(world.checkpoint)
    again = drivers.run(world.root, *arguments)

    assert (first.ending, killed.code) == (Ending.DONE, -9), killed.output
    assert shown == all_rows(2)
    assert "some rows of epoch 1 of this stream are there" in rewound.output
    assert not planned_by_it
    assert "has written it up to epoch 1" in fresh.output
    assert again.ending is Ending.DONE, again.output
    check_at_the_end(world, target, files=3)


@pytest.mark.matrix
def test_two_processes_that_commit_an_epoch_at_once_show_it_once(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    order = order_for(sink, attempt, handle, tmp_path)
    started = [committing(order) for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in started]

    assert [process.returncode for process in started] == [0, 0], said
    assert sorted(text.splitlines()[-1] for text in said) == ["already committed", "committed"]
    assert numbers(target) == NUMBERS


@pytest.mark.matrix
def test_a_broker_that_is_killed_between_two_parts_and_comes_back_loses_and_doubles_nothing(
    spark: SparkSession, broker: KafkaCluster, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    gate = tmp_path / "gate"
    points = f"before-part-transaction=pause:{gate}@3"
    stalled = committing(order_for(sink, attempt, handle, tmp_path), points)
    wait_until(gate.exists, "the commit to come to its third part")
    broker.nodes[0].kill()
    gate.unlink()
    broker.nodes[0].start()
    output = stalled.communicate(timeout=300)[0]

    assert output.splitlines()[-1] in ("committed", "already committed"), output
    assert committed(sink, attempt, handle) is Outcome.ALREADY_COMMITTED
    assert numbers(target) == NUMBERS


@pytest.mark.matrix
def test_a_part_from_a_copy_of_the_checkpoint_is_not_taken_for_ones_own(
    spark: SparkSession, target: Target, sink: KafkaSink, tmp_path: Path
) -> None:
    attempt, handle = stage(sink, 0, in_files(spark))
    killed = committing(order_for(sink, attempt, handle, tmp_path), "after-part-transaction=kill@2")
    killed.communicate(timeout=120)
    theirs, other = Attempt(LINEAGE, 0, 1, start="another"), in_parts(target, tmp_path)
    staged = other.stage(Batch(attempt=theirs, rows=in_files(spark), offsets="f" * 64))
    with pytest.raises(TwoJournals, match="one checkpoint is a copy"):
        other.commit(theirs, staged.handle)


# What is refused.


def test_a_message_that_no_transaction_has_the_time_for_is_refused_with_what_to_do(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    sink = in_parts(target, tmp_path, send_rate=10)
    with pytest.raises(Refused, match=r"a message with .* bytes: at send_rate=10, shared by 2 lanes.*Set fewer lanes"):
        stage(sink, 0, in_files(spark))
