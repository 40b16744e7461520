"""Compares what is in the topics with the journal, epoch by epoch, as a reader of committed messages sees it.

A mark says from where to where its epoch's messages are. Whoever else writes to the topic writes there too: then only
messages that name their epoch (`epoch_headers`) can be counted. What retention or compaction has removed cannot be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

from epochal.participant import (
    NO_EPOCH,
    ROWS_NOT_READ,
    Difference,
    RowDigest,
    Scope,
    StoreAway,
    StoreReport,
    digest_text,
)
from epochal.sinks.kafka.cluster.clients import TIMEOUT, Cluster, Topic
from epochal.sinks.kafka.layout import digest_of, header_pairs
from epochal.sinks.kafka.ledger import some
from epochal.sinks.kafka.ledger_state import Mark


@dataclass(frozen=True, slots=True)
class Auditor:
    """Audits one stream in its topics."""

    cluster: Cluster
    topics: Mapping[str, Topic]

    def audit(self, scope: Scope, marks: Mapping[int, Mark]) -> StoreReport:
        """What is in the topics of the epochs that have marks."""
        last, first = max(marks, default=NO_EPOCH), min(marks, default=0)
        differences = []
        if last < scope.expected.last:
            there = last if last >= 0 else "none"
            what = f"is done in the journal, but the last epoch that is marked is {there}"
            differences.append(Difference(what, scope.expected.last))
        unproven = []
        if first > scope.expected.since:
            unproven.append(f"epochs up to {first - 1}: the marks of older epochs are not kept")
        through = {epoch: mark for epoch, mark in marks.items() if epoch <= scope.expected.through}
        recorded = {epoch: RowDigest(mark.rows, mark.digest) for epoch, mark in through.items()}
        if scope.fast:
            return StoreReport(recorded=recorded, differences=tuple(differences), unproven=(*unproven, ROWS_NOT_READ))
        found: dict[int, RowDigest] = {}
        for epoch, mark in sorted(through.items()):
            scope.progress(f"epoch {epoch}")
            reason = self._why_not(mark)
            read = None if reason else self._read(mark, scope.lineage, digest=mark.digest is not None)
            if read is not None and read.rows > mark.rows and not mark.headers:
                reason = "others write to the topic too; epoch_headers=True tells their messages apart"
            if reason:
                unproven.append(f"epoch {epoch}: {reason}")
            elif read is not None:
                found[epoch] = read
        return StoreReport(
            recorded=recorded, epochs=found, differences=tuple(differences), unproven=tuple(dict.fromkeys(unproven))
        )

    def _why_not(self, mark: Mark) -> str:
        """Why an epoch's messages cannot be counted; empty if they can."""
        names = [name for name in mark.ranges if self.topics[name].compacted]
        if names:
            return f"topic {', '.join(names)} is compacted, so messages are removed once their key has a newer one"
        spans = {(name, number): span for name, spans in mark.ranges.items() for number, span in spans.items()}
        begins = self.cluster.ends(spans, first=True)
        gone = sorted(f"{name}[{number}]" for (name, number), span in spans.items() if begins[name, number] > span[0])
        return f"messages of {', '.join(gone)} are no longer kept" if gone else ""

    def _read(self, mark: Mark, lineage: str, *, digest: bool) -> RowDigest:
        """Count the messages of an epoch."""
        rows = value = 0
        ours = header_pairs(lineage, mark.epoch)
        for name, spans in mark.ranges.items():
            for number, span in spans.items():
                for message in self._messages(name, number, span):
                    if mark.headers and not {*ours} <= {*(message.headers() or ())}:
                        continue
                    rows += 1
                    if digest:
                        value += digest_of(_bytes(message.key()), _bytes(message.value()))
        return RowDigest(rows, digest_text(value) if digest else None)

    def _messages(self, name: str, partition: int, span: tuple[int, int]) -> Iterator[Message]:
        """The committed messages of a partition, from an offset up to another."""
        consumer = Consumer(
            {
                **self.cluster.endpoint.settings(),
                "group.id": "epochal",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.error.backoff.ms": 20,
            }
        )
        at, end = span
        deadline = time.monotonic() + TIMEOUT
        try:
            consumer.list_topics(name, timeout=TIMEOUT)
            consumer.assign([TopicPartition(name, partition, at)])
            while at < end:
                for message in some(consumer):
                    deadline = time.monotonic() + TIMEOUT
                    offset, fault = message.offset() or 0, message.error()
                    if fault is None and offset < end:
                        yield message
                    if fault is None or fault.name() == "_PARTITION_EOF":
                        at = max(at, offset if fault is not None else offset + 1)
                    elif not fault.retriable():
                        raise self.cluster.translated(fault, f"topic {name!r}")
                if time.monotonic() > deadline:
                    raise StoreAway(f"topic {name!r}: partition {partition} is not readable up to offset {end}")
        finally:
            consumer.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
