"""Writes an epoch's staged files: in Spark's executors, or in this process if no Spark runs.

Once all rows of a file are acknowledged, the ledger records the file, so that a commit that was interrupted
resumes with the others. Errors come back to the driver as rows of the answer: an exception of a worker would
arrive as a page of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra.cluster.connection import connect
from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.cluster.faults import translated
from epochal.sinks.cassandra.commit.totals import Adder, Adding
from epochal.sinks.cassandra.commit.writer import WritePlan, Writer, changes
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.spark.staged_files import batches_in
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import EpochalError, Refused, StoreAway

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FILE = "_file"
WRITTEN, AWAY, REFUSED = "written", "away", "refused"
ANSWER = "part string, kind string, text string"


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs to write files of one epoch."""

    endpoint: Endpoint
    keyspace: str
    table: str
    lineage: str
    epoch: int
    generation: int
    plan: WritePlan
    adding: Adding | None
    rows: Mapping[str, int]  # how many each file has, by its name

    def part(self, file: str) -> str:
        return f"{self.generation}/{file}"

    def ledger(self) -> Ledger:
        return Ledger(lambda: connect(self.endpoint), self.keyspace, self.table)


def run_in_spark(spark: SparkSession, job: Job, files: Mapping[str, str]) -> None:
    """Let executors write the files, which are given by their URIs."""
    frame = spark.read.parquet(*files.values()).selectExpr("*", f"_metadata.file_name AS {FILE}")
    answers = frame.mapInArrow(partial(_in_worker, job=job), ANSWER).collect()
    check([(row["part"], row["kind"], row["text"]) for row in answers], files)


def run_here(job: Job, files: Mapping[str, str]) -> None:
    """Write local files from this process."""
    answers: list[tuple[str, str, str]] = []
    for name, path in files.items():
        answers += write(job, ((name, batch) for batch in batches_in(LocalSinkFiles(), path)))
    check(answers, files)


def check(answers: Sequence[tuple[str, str, str]], files: Mapping[str, str]) -> None:
    """Raise the workers' errors, or an error if no worker wrote some file."""
    for kind, error in ((REFUSED, Refused), (AWAY, StoreAway)):
        texts = sorted({text for _, answered, text in answers if answered == kind})
        if texts:
            raise error("; ".join(texts))
    missing = set(files) - {part for part, kind, _ in answers if kind == WRITTEN}
    if missing:
        raise OSError(f"{len(missing)} of {len(files)} staged files were not written; trying again")


def _in_worker(batches: Iterator[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    answers = write(job, _by_file(batches))
    # After an error the rest is read too: Spark waits until its worker has read all input.
    for _ in batches:
        pass
    columns = list(zip(*answers, strict=True)) or [(), (), ()]
    names = ["part", "kind", "text"]
    yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], names)


def _by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Spark's batches, cut where one file ends and the next begins."""
    for batch in batches:
        names = batch.column(FILE)
        ends = [*(1 + row for row in changes(names)), batch.num_rows] if batch.num_rows else []
        for start, end in zip([0, *ends], ends, strict=False):
            yield names[start].as_py(), batch.slice(start, end - start)


def write(job: Job, batches: Iterator[tuple[str, pa.RecordBatch]]) -> list[tuple[str, str, str]]:
    """Write rows file by file; the outcome of each."""
    answers: list[tuple[str, str, str]] = []
    file, rows = "", 0
    try:
        connection = connect(job.endpoint)
        ledger = job.ledger()
        writer: Any = Writer(connection, job.plan) if job.adding is None else Adder(connection, job.plan, job.adding)

        def finish() -> None:
            writer.finish()
            # A file may be split over several tasks, none of which sees all of it.
            if rows == job.rows[file] and not (job.adding and job.adding.dry):
                failpoints.hit("before-part")
                ledger.note_part(job.lineage, job.epoch, job.part(file))
                failpoints.hit("after-part")
            answers.append((file, WRITTEN, ""))

        for name, batch in batches:
            if name != file and file:
                finish()
                rows = 0
            file = name
            rows += writer.write(batch)
        if file:
            finish()
    except Exception as fault:  # noqa: BLE001  # the driver raises it from the answer
        known = fault if isinstance(fault, EpochalError | OSError) else translated(fault, "writing rows")
        answers.append((file, REFUSED if isinstance(known, EpochalError) else AWAY, str(known)))
    return answers
