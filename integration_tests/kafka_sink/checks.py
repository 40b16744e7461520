"""What must hold for the topic that killed drivers write to, by Kafka's own client and Spark's own logs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from confluent_kafka import Message

from integration_tests.kafka_sink.consuming import Target
from integration_tests.spark.chains import run_here
from integration_tests.spark.checks import early, planned
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, Row, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def row_of(message: Message) -> Row:
    found = json.loads(message.value() or b"")
    return found["id"], found["file"], found["kind"], found["word"]


def visible(target: Target) -> Counter[Row]:
    return Counter(map(row_of, target.messages()))


def check_after_a_kill(world: World, target: Target) -> None:
    """Nothing is visible that is not decided, nothing twice, and whole epochs only, without a gap."""
    rows: Counter[Row] = Counter()

    def is_whole() -> bool:
        # A transaction that is being committed appears in one partition after the other.
        nonlocal rows
        rows = visible(target)
        return all(count == ROWS for count in Counter(row[1] for row in rows).values())

    wait_until(is_whole, "epochs to be whole")
    files = sorted({row[1] for row in rows})
    late = early(world, files)

    assert not late, f"files {late} of the source are visible before their epochs are decided"
    assert max(rows.values(), default=1) == 1, "rows are visible twice"
    assert files == list(range(len(files))), f"files {files} of the source are visible"


def check_at_the_end(world: World, target: Target, *, files: int) -> None:
    """Every row once, in the order of epochs, and nothing staged."""
    in_partition: dict[int | None, list[int]] = {}
    epoch_of = planned(world)
    for message in target.messages():
        in_partition.setdefault(message.partition(), []).append(epoch_of[row_of(message)[1]])

    assert visible(target) == all_rows(files)
    assert all(epochs == sorted(epochs) for epochs in in_partition.values())
    assert len(in_partition) == 2
    assert list(world.checkpoint.glob("epochal-staged/*/*/*")) == []


def check_a_stalled_driver(
    spark: SparkSession, drivers: Children, world: World, target: Target, sinks: str, point: str
) -> None:
    """A driver stalls in the commit of its second epoch, a newer one goes on, and the first changes nothing later."""
    arguments = ("--sinks", sinks, "--topic", f"{target.bootstrap}/{target.topic}")
    world.feed(3)
    gate = world.root / "gate"
    stalled = drivers.start(world.root, *arguments, points=f"{point}=pause:{gate}@2")
    stalled.wait_for(gate)
    world.feed(5)
    run_here(spark, world, *arguments)
    between = visible(target)
    gate.unlink()
    woken = stalled.wait()

    assert woken.ending in (Ending.FENCED_OUT, Ending.CONCURRENT_UPDATE, Ending.FAILED), woken.output
    assert between == all_rows(5)
    check_at_the_end(world, target, files=5)
