"""Stages an epoch: Spark encodes, checks and writes its messages in one job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.participant import Attempt, BadRows, Refused, StagedEpoch, StagedFiles, failpoints, quoted
from epochal.sinks.kafka.handle import StagedMessages
from epochal.sinks.kafka.options import KafkaOptions
from epochal.sinks.kafka.stage import messages
from epochal.sinks.kafka.stage.messages import ERROR, LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from epochal.sinks.kafka.cluster.clients import Topic

RECEIVED = "received"
MOST_TO_ONE = 22  # what is staged is smaller than what is sent by at most so much: snappy copies 64 bytes by 3


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages epochs for topics as they are now."""

    options: KafkaOptions
    topics: Mapping[str, Topic]
    files: StagedFiles

    def check_topics(self) -> None:
        """Refused for settings of a topic that could make a decided epoch fail."""
        late = [topic.name for topic in self.topics.values() if topic.takes_time and _is_limited(topic.behind_ms)]
        if late and self.options.timestamp is not None:
            raise Refused(
                f"topic {', '.join(map(repr, late))}: message.timestamp.before.max.ms refuses old messages, and an "
                "epoch may be committed late, after the brokers were away. Nothing was written. Remove that setting "
                "of the topic, or timestamp="
            )

    def stage(self, attempt: Attempt, rows: DataFrame, offsets: str) -> tuple[StagedMessages, int]:
        """The staged epoch, and how many rows it was given. BadRows if one of them cannot be a message."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self.check_topics()
        if faults := messages.faults_of(rows, self.options):
            lines = "".join(f"\n  - {fault}" for fault in faults)
            raise BadRows(f"the frame does not fit:{lines}\nNothing of the epoch was written")
        checked, counter = self._checked(rows), None
        if self.options.dead_letters is not None:
            counter = Observation()
            checked = checked.observe(counter, f.count(f.lit(1)).alias(RECEIVED)).where(f"{ERROR} IS NULL")
        lanes = self.options.lanes_of_epochs
        sums = messages.digest_sums() if self.options.digest else []
        sums += messages.largest(self.options) if lanes else []
        failpoints.hit("before-write")
        staged = self.files.write(attempt, messages.messages(checked, self.options), sums)
        failpoints.hit("after-write")
        part_rows = self._rows_of_parts(int(staged.sums[LARGEST] or 1)) if lanes else 0
        if not lanes:
            self._check_size(attempt, staged)
        epoch = StagedMessages(
            staged=staged,
            target=self.options.place,
            partitions={topic.name: topic.partitions for topic in self.topics.values()},
            offsets=offsets,
            digest=messages.digest_of(staged.sums) if self.options.digest else None,
            headers=self.options.epoch_headers,
            placed=self.options.partition is not None,
            lanes=lanes,
            part_rows=part_rows,
        )
        return epoch, staged.rows if counter is None else int(counter.get.get(RECEIVED) or 0)

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that cannot be messages, with the reason for each."""
        checked = self._checked(rows)
        return checked.where(checked[ERROR].isNotNull()).select(*map(quoted, rows.columns), ERROR)

    def _checked(self, rows: DataFrame) -> DataFrame:
        return messages.checked(rows, self.options, self.topics, int(time.time() * 1000))

    def _rows_of_parts(self, largest: int) -> int:
        """How many messages a transaction surely has the time for, if all are as large as the largest."""
        options = self.options
        most = options.most_bytes // options.lanes_of_epochs
        if largest > most:
            raise Refused(
                f"a message with {largest:,} bytes: at send_rate={options.send_rate!r}, shared by "
                f"{options.lanes_of_epochs} lanes, a transaction of {options.timeout:.0f} s (transaction_timeout) "
                f"takes {most:,}. Nothing of the epoch was written. Set fewer lanes, a longer transaction_timeout, or "
                "the send_rate that the brokers surely take"
            )
        return most // largest

    def _check_size(self, attempt: Attempt, staged: StagedEpoch) -> None:
        """A transaction that takes too long is rolled back by the brokers, again and again."""
        around = staged.rows * messages.around(self.options)
        if around + MOST_TO_ONE * staged.bytes <= self.options.most_bytes:
            return
        size = around + sum(batch.nbytes for batch in self.files.read(attempt, staged))
        if size <= self.options.most_bytes:
            return
        options = self.options
        raise Refused(
            f"{staged.rows} messages with {size:,} bytes: at send_rate={options.send_rate!r} a transaction of "
            f"{options.timeout:.0f} s (transaction_timeout) takes {options.most_bytes:,}. Nothing of the epoch was "
            "written. Let the brokers allow more (transaction.max.timeout.ms) and set a longer transaction_timeout; or "
            "set the send_rate that they surely take; or give the source a limit, such as maxOffsetsPerTrigger, and "
            "begin with a new checkpoint"
        )


def _is_limited(milliseconds: int) -> bool:
    return milliseconds < 1 << 60
