"""Offsets of Kafka mean their rows: what the guard proves by them, refuses because of them, and cannot know."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from epochal import DeltaSink, EpochalError, EpochWriter, ForeignTarget, OffsetsChanged, Rewound
from integration_tests.kafka.checks import check_at_the_end
from integration_tests.kafka.topics import PER_TRIGGER, Topic, stream
from integration_tests.spark.checks import committed, visible_rows
from integration_tests.spark.queries import archive, to_checkpoint
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EACH = PER_TRIGGER // 2  # messages of each partition in an epoch


class Stream:
    """A query from a topic into files and Delta, run to its end as often as it is asked to."""

    def __init__(self, spark: SparkSession, world: World, topic: Topic) -> None:
        self.spark, self.world, self.topic = spark, world, topic

    def run(self, *, adopt: Any = None, new: Any = None, per_trigger: int = PER_TRIGGER, **options: str) -> None:
        table = DeltaSink(str(self.world.table), name="table")
        writer = EpochWriter(archive(self.world), table, adopt=adopt, new=new)
        frame = stream(self.spark, self.topic.place, per_trigger=per_trigger, options=options)
        writer.start(to_checkpoint(frame, self.world)).awaitTermination()

    def feed_and_run(self, epochs: int) -> None:
        self.topic.feed(epochs * EACH)
        self.run()

    def refused(self, kind: type[EpochalError], **options: Any) -> dict[str, str]:
        """See a start refused and nothing written. Returns the choices that the refusal names."""
        before = [visible_rows(target) for target in self.world.targets]
        with pytest.raises(kind) as refusal:
            self.run(**options)

        assert [visible_rows(target) for target in self.world.targets] == before
        return dict(re.findall(r"(adopt|new)='([^']+)'", str(refusal.value)))

    def restored(self) -> None:
        """Four epochs in the sinks; checkpoint and journal as they were after two."""
        self.feed_and_run(2)
        shutil.copytree(self.world.checkpoint, self.world.root / "copy")
        self.feed_and_run(2)
        self.check(4)
        shutil.rmtree(self.world.checkpoint)
        shutil.move(self.world.root / "copy", self.world.checkpoint)

    def check(self, epochs: int) -> None:
        check_at_the_end(self.world, self.topic, self.world.first, self.world.table)
        assert max(committed(self.world)) == epochs - 1


@pytest.fixture
def query(spark: SparkSession, world: World, topic: Topic) -> Stream:
    return Stream(spark, world, topic)


def test_adopt_skips_what_a_restored_checkpoint_reads_again_by_the_same_offsets(query: Stream) -> None:
    query.restored()
    choices = query.refused(Rewound)
    query.run(adopt=choices["adopt"])  # epochs 2 and 3 end where they did
    query.check(4)
    query.feed_and_run(1)

    assert set(choices) == {"adopt", "new"}
    query.check(5)


def test_what_a_restored_checkpoint_would_cut_into_other_epochs_is_refused_and_a_new_one_can_begin_after_it(
    query: Stream,
) -> None:
    query.restored()
    choices = query.refused(Rewound)
    query.topic.feed(5, partitions=(1,))  # Spark shares its limit out by what each partition holds
    query.refused(OffsetsChanged, adopt=choices["adopt"])

    # The rows themselves say where the next checkpoint has to begin.
    shutil.rmtree(query.world.checkpoint)
    ends = {
        partition: 1 + max(row[0] for row in visible_rows(query.world.table) if row[1] == partition)
        for partition in (0, 1)
    }
    begin = json.dumps({query.topic.name: {str(partition): end for partition, end in ends.items()}})
    choices = query.refused(ForeignTarget, startingOffsets=begin)
    query.run(adopt=choices["adopt"], startingOffsets=begin)

    assert set(choices) == {"adopt", "new"}
    check_at_the_end(query.world, query.topic, query.world.first, query.world.table)


def test_a_topic_that_was_deleted_and_made_again_is_refused_by_spark_and_no_sink_changes(query: Stream) -> None:
    query.feed_and_run(2)
    before = visible_rows(query.world.first)
    query.topic.kafka.delete_topic(query.topic.name)
    query.topic.kafka.create_topic(query.topic.name, partitions=2)
    query.topic.feed(EACH)  # fewer than were read
    with pytest.raises(StreamingQueryException, match=r"PARTITION_OFFSET_CHANGED|offset was changed from"):
        query.run()

    assert visible_rows(query.world.first) == visible_rows(query.world.table) == before
    assert max(committed(query.world)) == 1  # Spark may have planned the next one before it noticed


def test_an_epoch_that_begins_elsewhere_is_not_the_same_although_it_ends_there(query: Stream) -> None:
    query.topic.feed(EACH)
    begin = json.dumps({query.topic.name: {"0": 1, "1": 2}})
    query.run(startingOffsets=begin)
    for name in ("offsets", "commits", "sources"):
        shutil.rmtree(query.world.checkpoint / name)
    choices = query.refused(Rewound)
    for name in ("offsets", "sources"):
        shutil.rmtree(query.world.checkpoint / name, ignore_errors=True)

    query.refused(OffsetsChanged, adopt=choices["adopt"], startingOffsets="earliest")
