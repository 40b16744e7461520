"""Commits staged epochs: one transaction has the messages and the epoch's mark, so both are there or neither is."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from epochal.participant import (
    Attempt,
    DataLost,
    FencedOut,
    Outcome,
    Refused,
    StagedFiles,
    StoreAway,
    check_predecessor,
    check_same_attempt,
    failpoints,
)
from epochal.sinks.kafka.cluster.clients import Cluster, Topic
from epochal.sinks.kafka.cluster.transactions import Sending, ShutOut, Transactional, held
from epochal.sinks.kafka.commit.in_parts import PartsSender
from epochal.sinks.kafka.commit.parts import grown
from epochal.sinks.kafka.commit.sending import send
from epochal.sinks.kafka.handle import StagedMessages
from epochal.sinks.kafka.layout import epoch_key, header_pairs, transactional_id
from epochal.sinks.kafka.ledger import Ledger
from epochal.sinks.kafka.ledger_state import LedgerState, mark_of
from epochal.sinks.kafka.options import KafkaOptions

TRIES = 5
TURN = 3.0  # seconds that another process gets to commit the epoch that it has begun

Ends = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Commits staged epochs to the sink's topics."""

    options: KafkaOptions
    where: str  # the target, for messages
    cluster: Cluster
    ledger: Ledger
    files: StagedFiles

    def commit(self, attempt: Attempt, epoch: StagedMessages) -> Outcome:
        """Send an epoch with its mark, unless the mark is there."""
        if epoch.target != self.options.place:
            raise Refused(
                f"a decided epoch was staged for {epoch.target}, this sink writes to {self.options.place}. Run "
                "`epochal recover CHECKPOINT` before its topics are changed"
            )
        outcome = self._written(attempt, epoch)
        failpoints.hit("before-cleanup")
        self.files.delete(attempt, epoch.staged)
        failpoints.hit("after-cleanup")
        return outcome

    def _is_there(self, attempt: Attempt, epoch: StagedMessages) -> bool:
        """Whether the epoch is in the topics. Refused if it is another attempt's, or the one before it is missing."""
        state = self.ledger.read(self.options.place, attempt.lineage)
        marks = state.marks(self.options.place, attempt.lineage, self._identities())
        last = max(marks, default=-1)
        check_predecessor(self.options.name, self.where, attempt, lambda before: before <= last)
        if attempt.epoch > last:
            self._check_place(attempt, state)
            return False
        if attempt.epoch in marks:
            shown = marks[attempt.epoch].shown()
            check_same_attempt(self.options.name, self.where, attempt, epoch.offsets, shown)
        return True

    def _check_place(self, attempt: Attempt, state: LedgerState) -> None:
        successor = state.lineages(self.options.place).adopted_by(attempt.lineage)
        if successor is not None:
            raise FencedOut(
                f"sink {self.options.name!r}: epoch {attempt.epoch}: another stream, {successor}, has taken this one's "
                "place; nothing of the epoch was written"
            )

    def _written(self, attempt: Attempt, epoch: StagedMessages) -> Outcome:
        with held(self.cluster, transactional_id(self.options.place, attempt.lineage)) as transactions:
            if self._is_there(attempt, epoch):
                return Outcome.ALREADY_COMMITTED
            topics = self.cluster.topics(self.options.topics)
            self._check_partitions(attempt, epoch, topics)
            sending = Sending(
                timeout=self.options.timeout,
                compression=self.options.compression,
                max_bytes=min(topic.max_bytes for topic in topics.values()),
            )
            for _ in range(TRIES):
                try:
                    producer, is_new = transactions.producer(sending)
                    # What others have sent with this id is committed or rolled back now; they can commit no more. Who
                    # has had the id since before the first look cannot have missed anything.
                    if is_new and self._is_there(attempt, epoch):
                        return Outcome.ALREADY_COMMITTED
                    self._transact(producer, attempt, epoch, topics, is_new=is_new)
                    return Outcome.COMMITTED
                except ShutOut:
                    transactions.drop()
                    if self._came(attempt, epoch):
                        return Outcome.ALREADY_COMMITTED
                except DataLost:
                    transactions.drop()
                    if self._is_there(attempt, epoch):  # whoever has committed it has removed the files
                        return Outcome.ALREADY_COMMITTED
                    raise
                except BaseException:
                    transactions.drop()
                    raise
        raise StoreAway(f"another process has begun to commit epoch {attempt.epoch} {TRIES} times, and not ended it")

    def _came(self, attempt: Attempt, epoch: StagedMessages) -> bool:
        """Give the process that has shut this one out its time to commit the epoch."""
        deadline = time.monotonic() + TURN * (0.5 + random.random())
        while time.monotonic() < deadline:
            if self._is_there(attempt, epoch):
                return True
            time.sleep(0.1)
        return False

    def _transact(
        self,
        producer: Transactional,
        attempt: Attempt,
        epoch: StagedMessages,
        topics: dict[str, Topic],
        *,
        is_new: bool,
    ) -> None:
        self.files.check(attempt, epoch.staged)
        if epoch.lanes:
            sent, ranges = self._parts().send(attempt, epoch, topics, producer.sending, (producer, is_new))
            producer.begin()
        else:
            begin = self._ends(topics)
            producer.begin()
            failpoints.hit("before-send")
            headers = header_pairs(attempt.lineage, attempt.epoch) if epoch.headers else []
            sent = send(producer, self.files.read(attempt, epoch.staged), self.options.topics[0], headers)
            producer.flush()
            failpoints.hit("after-send")
            ranges = grown(begin, self._ends(topics))
        if sent != epoch.staged.rows:
            raise DataLost(f"epoch {attempt.epoch}: {sent} of {epoch.staged.rows} rows are in the staged files")
        mark = mark_of(
            attempt,
            offsets=epoch.offsets,
            rows=sent,
            digest=epoch.digest,
            topics={topic.name: topic.identity for topic in topics.values()},
            ranges=ranges,
            headers=epoch.headers,
        )
        # Last, and alone: until the transaction ends, nobody reads what follows it in epochal's own topic.
        failpoints.hit("before-mark")
        with producer.errors("send the epoch's mark"):
            key = epoch_key(self.options.place, attempt.lineage, attempt.epoch)
            producer.mark(self.options.ledger_topic, key, mark.to_json())
        producer.flush()
        failpoints.hit("after-mark")
        failpoints.hit("before-transaction")
        producer.commit()
        self.ledger.committed(producer.marked)
        failpoints.hit("after-transaction")

    def _parts(self) -> PartsSender:
        return PartsSender(
            options=self.options, where=self.where, cluster=self.cluster, ledger=self.ledger, files=self.files
        )

    def _ends(self, topics: dict[str, Topic]) -> Ends:
        return self.cluster.ends(
            (topic.name, number) for topic in topics.values() for number in range(topic.partitions)
        )

    def _identities(self) -> dict[str, str]:
        return self.cluster.identities(self.options.topics)

    def _check_partitions(self, attempt: Attempt, epoch: StagedMessages, topics: dict[str, Topic]) -> None:
        fewer = [name for name, topic in topics.items() if topic.partitions < epoch.partitions.get(name, 0)]
        if fewer and epoch.placed:
            raise Refused(
                f"topic {', '.join(map(repr, fewer))} was created again since epoch {attempt.epoch} was staged, with "
                "fewer partitions. Nothing of the epoch was written. Add partitions, and start the query again"
            )
