"""A broker that dies, comes back, or is not there: the stream goes on by itself or fails whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from epochal import EpochWriter
from integration_tests.kafka.checks import check_at_the_end
from integration_tests.kafka.topics import Topic, stream
from integration_tests.spark.checks import committed, visible_rows
from integration_tests.spark.children import Children
from integration_tests.spark.queries import archive, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

IMPATIENT = {"kafka.default.api.timeout.ms": "3000", "kafka.request.timeout.ms": "1000"}


def test_a_stream_goes_on_when_its_broker_was_killed_and_is_back(
    spark: SparkSession, drivers: Children, world: World, topic: Topic
) -> None:
    (broker,) = topic.kafka.nodes
    stop = world.root / "stop"
    feeder = drivers.run_module("integration_tests.kafka.feeder", topic.place, str(stop))
    query = EpochWriter(archive(world)).start(
        to_checkpoint(stream(spark, topic.place), world, processingTime="0 seconds")
    )
    wait_until(lambda: visible_rows(world.first), "the first epoch")
    pid = broker.pid
    broker.kill()
    before = max(committed(world), default=-1)
    broker.start()
    wait_until(lambda: max(committed(world), default=-1) > before + 1, "epochs of the broker that was started again")
    stop.touch()
    fed = json.loads(feeder.wait().output.splitlines()[-1])
    wait_until(lambda: sum(visible_rows(world.first).values()) >= sum(topic.ends().values()), "all that was fed")
    query.stop()

    assert broker.pid != pid
    assert sum(topic.ends().values()) >= fed["sent"]  # what the broker has acknowledged survives
    check_at_the_end(world, topic, world.first)


def test_a_broker_that_is_away_at_the_start_fails_the_query_and_the_next_start_reads_everything(
    spark: SparkSession, world: World, topic: Topic
) -> None:
    topic.feed(6)
    (broker,) = topic.kafka.nodes
    broker.kill()
    with pytest.raises(StreamingQueryException, match="TimeoutException"):
        EpochWriter(archive(world)).start(
            to_checkpoint(stream(spark, topic.place, options=IMPATIENT), world)
        ).awaitTermination()
    seen = [*visible_rows(world.first), *world.checkpoint.glob("offsets/*")]
    broker.start()
    EpochWriter(archive(world)).start(to_checkpoint(stream(spark, topic.place), world)).awaitTermination()

    assert seen == []
    check_at_the_end(world, topic, world.first)
