"""Commits an epoch in many transactions that executors send at once, each with the mark of its part.

Parts that are there are not sent again, so a commit that was broken off goes on where it was. Readers of committed
messages see part after part. The epoch's own mark comes last, once all parts are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from epochal.participant import (
    Attempt,
    DataLost,
    FencedOut,
    Refused,
    StagedEpoch,
    StagedFiles,
    StoreAway,
    TwoJournals,
    failpoints,
)
from epochal.sinks.kafka.cluster.clients import Cluster, Topic
from epochal.sinks.kafka.cluster.transactions import Sending, ShutOut, Transactional
from epochal.sinks.kafka.commit import lanes
from epochal.sinks.kafka.commit.lanes import ANSWER, Answer, Job
from epochal.sinks.kafka.commit.parts import Part, Ranges, planned, union
from epochal.sinks.kafka.handle import StagedMessages
from epochal.sinks.kafka.layout import lanes_key, transactional_id
from epochal.sinks.kafka.ledger import Ledger
from epochal.sinks.kafka.ledger_state import lanes_to_json
from epochal.sinks.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERRORS: dict[str, type[Exception]] = {
    lanes.FENCED: FencedOut,
    lanes.LOST: DataLost,
    lanes.COPY: TwoJournals,
    lanes.REFUSED: Refused,
    lanes.SHUT_OUT: ShutOut,
    lanes.AWAY: StoreAway,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSender:
    """Sends the parts of epochs."""

    options: KafkaOptions
    where: str
    cluster: Cluster
    ledger: Ledger
    files: StagedFiles

    def send(
        self,
        attempt: Attempt,
        epoch: StagedMessages,
        topics: Mapping[str, Topic],
        sending: Sending,
        stream: tuple[Transactional, bool],
    ) -> tuple[int, Ranges]:
        """Send what is not there: how many messages the epoch has, and where they are.

        `stream` is the producer of the stream's own id, and whether it is new.
        """
        producer, is_new = stream
        self._record_lanes(producer, attempt.lineage, epoch.lanes)
        if is_new:
            shut_out_lanes(self.cluster, self.options.place, attempt.lineage, epoch.lanes, sending)
        parts = planned(epoch.staged.files, epoch.lanes, epoch.part_rows)
        job = Job(
            endpoint=replace(self.cluster.endpoint, from_journal=False),  # whoever reads the journal has been asked
            sink=self.options.name,
            where=self.where,
            place=self.options.place,
            ledger_topic=self.options.ledger_topic,
            topics={topic.name: (topic.identity, topic.partitions) for topic in topics.values()},
            topic=self.options.topics[0],
            attempt=attempt,
            offsets=epoch.offsets,
            headers=epoch.headers,
            sending=sending,
            parts=parts,
        )
        answers = self._answers(job, attempt, epoch.staged)
        _check(answers, parts)
        ranges = [_ranges(one) for one in answers]
        return sum(one.rows for one in answers), union(ranges)

    def _record_lanes(self, producer: Transactional, lineage: str, count: int) -> None:
        """Let whoever takes this stream's place know which ids it has to shut out."""
        place = self.options.place
        if self.ledger.read(place, lineage).lanes.get((place, lineage), 0) >= count:
            return
        failpoints.hit("before-lanes")
        producer.begin()
        with producer.errors("record the number of lanes"):
            producer.mark(self.options.ledger_topic, lanes_key(place, lineage), lanes_to_json(count))
        producer.flush()
        producer.commit()
        self.ledger.committed(producer.marked)
        failpoints.hit("after-lanes")

    def _answers(self, job: Job, attempt: Attempt, staged: StagedEpoch) -> list[Answer]:
        if not job.parts:
            return []
        with self.files.read_by_executors(attempt, staged):
            return self._sent(job, attempt, staged)

    def _sent(self, job: Job, attempt: Attempt, staged: StagedEpoch) -> list[Answer]:
        frames = self.files.by_file(attempt, staged, name=lanes.FILE, row=lanes.ROW)
        if frames is None:
            one_by_one = sorted(staged.files)
            return lanes.send_all(
                job, ((file[0], self.files.read(attempt, replace(staged, files=(file,)))) for file in one_by_one)
            )
        of_lanes = []
        for lane in sorted({part.lane for part in job.parts}):
            names = dict.fromkeys(part.file for part in job.parts if part.lane == lane)
            # One task for each lane: two of them would shut each other out.
            of_lanes.append(_all_of([frames[name] for name in names]).coalesce(1))
        rows = _all_of(of_lanes).mapInArrow(partial(lanes.in_worker, job=job), ANSWER).collect()
        return [Answer(**row.asDict()) for row in rows]


def shut_out_lanes(cluster: Cluster, place: str, lineage: str, count: int, sending: Sending) -> None:
    """End what others have left open in the lanes of a stream; they can commit no more."""
    for lane in range(count):
        Transactional(cluster, transactional_id(place, lineage, lane), sending).give_up()


def _all_of(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _check(answers: list[Answer], parts: list[Part]) -> None:
    """Raise what the lanes have met; in the order of `ERRORS`, since a fault of one may cause others'."""
    for kind, error in ERRORS.items():
        texts = sorted({one.text for one in answers if one.kind == kind})
        if texts:
            raise error("; ".join(texts))
    missing = {(part.lane, part.number) for part in parts} - {(one.lane, one.number) for one in answers}
    if missing:
        raise StoreAway(f"{len(missing)} of {len(parts)} parts were not sent")


def _ranges(answer: Answer) -> Ranges:
    found: dict[str, dict[str, list[int]]] = json.loads(answer.ranges)
    return {
        name: {int(number): (first, end) for number, (first, end) in spans.items()} for name, spans in found.items()
    }
