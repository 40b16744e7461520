"""Sends parts of an epoch, each in a transaction with its mark: in an executor, or in the driver if no Spark runs.

Whoever begins to use the id of a lane shuts out all others, then looks which of its parts are there, and sends the
rest. So a task that runs twice, or a driver that was taken for dead, sends no part twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from epochal.participant import Attempt, DataLost, EpochalError, FencedOut, TwoJournals, check_same_attempt, failpoints
from epochal.sinks.kafka import failpoints as _failpoints  # noqa: F401  # which registers them, in executors too
from epochal.sinks.kafka.cluster.clients import connect
from epochal.sinks.kafka.cluster.endpoint import Endpoint
from epochal.sinks.kafka.cluster.transactions import Sending, ShutOut, Transactional
from epochal.sinks.kafka.commit.parts import Part, grown
from epochal.sinks.kafka.commit.sending import send
from epochal.sinks.kafka.layout import header_pairs, part_key, transactional_id
from epochal.sinks.kafka.ledger import ledger
from epochal.sinks.kafka.ledger_state import PartMark

if TYPE_CHECKING:
    import pyarrow as pa

SENT, SHUT_OUT, AWAY, REFUSED, FENCED, LOST, COPY = "sent", "shut out", "away", "refused", "fenced", "lost", "copy"
ANSWER = "lane long, number long, kind string, rows long, ranges string, text string"
FILE, ROW = "_file", "_row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a lane needs. It goes to the executors, and has the password."""

    endpoint: Endpoint
    sink: str
    where: str  # the target, for messages
    place: str
    ledger_topic: str
    topics: Mapping[str, tuple[str, int]]  # their ids and numbers of partitions
    topic: str  # of rows that do not name one
    attempt: Attempt
    offsets: str
    headers: bool
    sending: Sending
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a part."""

    lane: int
    number: int
    kind: str
    rows: int = 0
    ranges: str = "{}"
    text: str = ""


class Lane:
    """One lane of an epoch, held by this process until somebody else takes it."""

    def __init__(self, job: Job, lane: int) -> None:
        self._job, self._lane = job, lane
        self._cluster = connect(job.endpoint)
        name = transactional_id(job.place, job.attempt.lineage, lane)
        self._producer = Transactional(self._cluster, name, job.sending)
        try:
            # Nothing of this lane is open any more, and nobody else can commit in it.
            self._there = self._look()
        except BaseException:
            self._producer.give_up()
            raise

    def sent(self, part: Part, rows: Rows) -> PartMark:
        """Send a part, unless it is there."""
        found = self._there.get(part.number)
        if found is None:
            return self._send(part, rows)
        for _ in rows.next(part.rows):
            pass
        return found

    def close(self) -> None:
        self._producer.give_up()

    def _look(self) -> dict[int, PartMark]:
        job, lineage, epoch = self._job, self._job.attempt.lineage, self._job.attempt.epoch
        state = ledger(self._cluster, job.ledger_topic).read(job.place, lineage, self._lane)
        successor = state.lineages(job.place).adopted_by(lineage)
        if successor is not None:
            raise FencedOut(
                f"epoch {epoch}: another stream, {successor}, has taken this one's place; the rest of the epoch was "
                "not written"
            )
        identities = {name: identity for name, (identity, _) in job.topics.items()}
        if state.last(job.place, lineage, identities) >= epoch:
            raise ShutOut("the epoch is there")
        found = {}
        for (lane, number), mark in state.parts.get((job.place, lineage), {}).items():
            if lane == self._lane and mark.epoch == epoch and dict(mark.topics) == identities:
                check_same_attempt(job.sink, job.where, job.attempt, job.offsets, mark.shown())
                found[number] = mark
        return found

    def _send(self, part: Part, rows: Rows) -> PartMark:
        job, attempt = self._job, self._job.attempt
        begin = self._ends()
        self._producer.begin()
        headers = header_pairs(attempt.lineage, attempt.epoch) if job.headers else []
        sent = send(self._producer, rows.next(part.rows), job.topic, headers)
        if sent != part.rows:
            raise DataLost(f"epoch {attempt.epoch}: {sent} of {part.rows} rows of a part are in {part.file}")
        self._producer.flush()
        mark = PartMark(
            epoch=attempt.epoch,
            generation=attempt.generation,
            start=attempt.start,
            offsets=job.offsets,
            rows=sent,
            topics={name: identity for name, (identity, _) in job.topics.items()},
            ranges=grown(begin, self._ends()),
        )
        with self._producer.errors("send a part's mark"):
            key = part_key(job.place, attempt.lineage, self._lane, part.number)
            self._producer.mark(job.ledger_topic, key, mark.to_json())
        self._producer.flush()
        failpoints.hit("before-part-transaction")
        self._producer.commit()
        failpoints.hit("after-part-transaction")
        return mark

    def _ends(self) -> dict[tuple[str, int], int]:
        return self._cluster.ends(
            (name, number) for name, (_, partitions) in self._job.topics.items() for number in range(partitions)
        )


class Rows:
    """The rows of a staged file, from which parts are taken one after the other."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def next(self, count: int) -> Iterator[pa.RecordBatch]:
        """The next so many rows, or as many as there are."""
        while count > 0:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            self._rest = batch.slice(count) if batch.num_rows > count else None
            taken = batch.slice(0, count)
            count -= taken.num_rows
            if taken.num_rows:
                yield taken


def send_all(job: Job, files: Iterable[tuple[str, Iterable[pa.RecordBatch]]]) -> list[Answer]:
    """Send the parts of whole files; what became of each. After a fault the rest is not sent."""
    lanes: dict[int, Lane] = {}
    answers: list[Answer] = []
    lane = number = -1
    try:
        for name, batches in files:
            rows = Rows(batches)
            for part in (part for part in job.parts if part.file == name):
                lane, number = part.lane, part.number
                if lane not in lanes:
                    lanes[lane] = Lane(job, lane)
                mark = lanes[lane].sent(part, rows)
                ranges = json.dumps(mark.ranges)
                answers.append(Answer(lane, number, SENT, mark.rows, ranges))
    except Exception as fault:  # noqa: BLE001  # the driver raises it from the answer
        kind, text = _told(fault)
        answers.append(Answer(lane, number, kind, text=text))
    finally:
        for held in lanes.values():
            held.close()
    return answers


def in_worker(batches: Iterator[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: batches of the files of a lane, file by file, with the name of each and the numbers of rows."""
    import pyarrow as pa

    pieces = _by_file(batches)
    answers = send_all(
        job, ((name, _in_order(name, (piece for _, piece in group))) for name, group in groupby(pieces, lambda p: p[0]))
    )
    for _ in batches:
        pass  # after a fault too: Spark waits until its worker has read all
    names = [name.partition(" ")[0] for name in ANSWER.split(", ")]
    table = pa.Table.from_pylist([{name: getattr(one, name) for name in names} for one in answers], _schema())
    yield from table.to_batches()


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"long": pa.int64(), "string": pa.string()}
    return pa.schema([(name, kinds[kind]) for name, kind in (one.split(" ") for one in ANSWER.split(", "))])


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Spark's batches, cut where one file ends and the next begins."""
    import pyarrow.compute as pc

    for batch in batches:
        runs = pc.run_end_encode(batch.column(FILE))
        start = 0
        for end, name in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield name, batch.slice(start, end - start)
            start = end


def _in_order(name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a file without the columns that are epochal's. Parts are cut by the order of rows."""
    at = 0
    for batch in batches:
        numbers = batch.column(ROW)
        if (numbers[0].as_py(), numbers[-1].as_py()) != (at, at + batch.num_rows - 1):
            raise OSError(f"Spark has read the rows of {name} in another order")
        at += batch.num_rows
        yield batch.select([column for column in batch.schema.names if column not in (FILE, ROW)])


def _told(fault: Exception) -> tuple[str, str]:
    kinds = {ShutOut: SHUT_OUT, FencedOut: FENCED, DataLost: LOST, TwoJournals: COPY, EpochalError: REFUSED}
    for kind, name in kinds.items():
        if isinstance(fault, kind):
            return name, str(fault)
    return AWAY, str(fault) if isinstance(fault, OSError) else f"{type(fault).__name__}: {fault}"
