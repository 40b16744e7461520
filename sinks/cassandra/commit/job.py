"""Who writes an epoch's staged files: Spark's executors, or this process where no Spark runs.

Each file that is acknowledged as a whole is noted in the ledger, so that a commit that broke off goes
on with the others. What goes wrong comes back as a row of the answer: an exception would arrive as a
page of text.
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
from epochal.sinks.cassandra.commit.writer import Plan, Writer, changes
from epochal.sinks.cassandra.ledger import Ledger
from epochal.txn import failpoints
from epochal.txn.errors import EpochalError, Refused, StoreAway

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FILE = "_file"
WRITTEN, AWAY, REFUSED = "written", "away", "refused"
LIMITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}  # bits of whole numbers
ANSWER = "part string, kind string, text string"


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs to write parts of one epoch."""

    endpoint: Endpoint
    keyspace: str
    table: str
    lineage: str
    epoch: int
    generation: int
    plan: Plan
    adding: Adding | None
    rows: Mapping[str, int]  # of each file, by its name

    def part(self, file: str) -> str:
        return f"{self.generation}/{file}"

    def ledger(self) -> Ledger:
        return Ledger(lambda: connect(self.endpoint), self.keyspace, self.table)


def by_spark(spark: SparkSession, job: Job, files: Mapping[str, str]) -> None:
    """Let executors write the files, each named by its URI."""
    frame = spark.read.parquet(*files.values()).selectExpr("*", f"_metadata.file_name AS {FILE}")
    answers = frame.mapInArrow(partial(_in_worker, job=job), ANSWER).collect()
    check([(row["part"], row["kind"], row["text"]) for row in answers], files)


def here(job: Job, files: Mapping[str, str]) -> None:
    """Write local files from this process."""
    from pyarrow.parquet import ParquetFile

    answers: list[tuple[str, str, str]] = []
    for name, path in files.items():
        batches = ((name, batch) for batch in ParquetFile(path).iter_batches(10_000))
        answers += write(job, batches)
    check(answers, files)


def check(answers: Sequence[tuple[str, str, str]], files: Mapping[str, str]) -> None:
    """Raise what the workers met; an error if a file was written by nobody."""
    for kind, error in ((REFUSED, Refused), (AWAY, StoreAway)):
        texts = sorted({text for _, found, text in answers if found == kind})
        if texts:
            raise error("; ".join(texts))
    missing = set(files) - {part for part, kind, _ in answers if kind == WRITTEN}
    if missing:
        raise OSError(f"{len(missing)} of {len(files)} staged files were not written; trying again")


def _in_worker(batches: Iterator[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    answers = write(job, _by_file(batches))
    # Whatever is left must be taken in all the same: Spark waits for its input to be read.
    for _ in batches:
        pass
    columns = list(zip(*answers, strict=True)) or [(), (), ()]
    names = ["part", "kind", "text"]
    yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], names)


def _by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Spark's batches run over the ends of files: cut there."""
    for batch in batches:
        names = batch.column(FILE)
        ends = [*(1 + row for row in changes(names)), batch.num_rows] if batch.num_rows else []
        for start, end in zip([0, *ends], ends, strict=False):
            yield names[start].as_py(), batch.slice(start, end - start)


def write(job: Job, batches: Iterator[tuple[str, pa.RecordBatch]]) -> list[tuple[str, str, str]]:
    """Write rows file by file; what became of each."""
    answers: list[tuple[str, str, str]] = []
    file, rows = "", 0
    try:
        connection = connect(job.endpoint)
        ledger = job.ledger()
        writer: Any = Writer(connection, job.plan) if job.adding is None else Adder(connection, job.plan, job.adding)

        def finish() -> None:
            writer.finish()
            # A file may have been split over several tasks, none of which has seen all of it.
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
    except Exception as fault:  # noqa: BLE001  # the driver gets it as an answer, and raises it
        known = fault if isinstance(fault, EpochalError | OSError) else translated(fault, "writing rows")
        answers.append((file, REFUSED if isinstance(known, EpochalError) else AWAY, str(known)))
    return answers
