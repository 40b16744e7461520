"""The first phase: Spark's own writer puts the epoch's files where no reader looks, and they are measured."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from epochal.sinks import digests, footers
from epochal.sinks.files import avro, columnar, digesting, joining
from epochal.sinks.files import buckets as bucketing
from epochal.sinks.files.buckets import AnyBucket, folder_of
from epochal.sinks.files.joining import spark_path
from epochal.sinks.files.layout import DATA, Layout
from epochal.sinks.files.options import Options
from epochal.sinks.files.rolling import Piece
from epochal.sinks.values import decode
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, OptionError, Refused
from epochal.txn.files import Entry, JoiningFiles, is_local, join
from epochal.txn.model import Attempt
from epochal.txn.tallies import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("epochal")

LINES_ARE_NOT_ROWS = ("csv", "text")  # a value may have several, and a policy counts lines of these
FEW = 100  # footers that the driver reads itself rather than start a job
VERY_FEW = 8  # footers on HDFS that are read in less time than Spark takes to plan a frame that is observed
SUCCESS_FILES = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


@dataclass(frozen=True, slots=True)
class Written:
    """What Spark has written for one attempt, and what was learnt of it."""

    files: Sequence[tuple[str, Entry]]  # each with the folder of its bucket below the target; none without rows
    rows: int
    counts: Sequence[int] | None  # the rows of each file, if their footers were read
    shape: str  # of all the files; empty where nothing is joined
    digest: str | None
    header: str | None  # the line that the files begin with, where an audit has to take it out


class Writing:
    """Stages the rows of epochs of one target.

    `write` keeps to the attempt's folder, and returns when the files are there, with as many rows as were counted
    where that can be told, and synced; else it raises. `headers` (what a joined file begins with) and `schemas` are
    by shape: those of all that was written so far.
    """

    def __init__(self, options: Options, files: JoiningFiles, layout: Layout) -> None:
        self._options, self._files, self._layout = options, files, layout
        self.headers: dict[str, bytes] = {}
        self.schemas: dict[str, StructType] = {}
        self._audit_headers: dict[str, str] = {}  # by schema
        self._very_few = False  # files in the last epoch, so that the footers of the next one are soon read

    def write(self, attempt: Attempt, rows: DataFrame) -> Written:
        """Let Spark write the staged files, and see that they are there."""
        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        failpoints.hit("before-write")
        counted, shape, header = self._save(rows, folder)
        failpoints.hit("after-write")
        found = self._found(self._files.walk(folder))
        footer_counts = self._read_footers(rows.sparkSession, folder, found, counted)
        count = self._count(found, counted, footer_counts)
        if count is None:
            raise Refused(
                f"sink {self._options.name!r}: the rows of epoch {attempt.epoch} that Spark wrote to {home} are not "
                "there, or not all of them. Do the driver and the executors see the same file system? Nothing of the "
                "epoch was published"
            )
        if count == 0:
            found, footer_counts = [], None  # Spark writes a file for an empty frame too
        if count:
            self._very_few = len(found) <= VERY_FEW
        self._files.sync_all([join(folder, entry.name) for _, entry in found])
        digest = counted.digest if counted is not None and self._options.digest else None
        return Written(found, count, footer_counts, shape, digest, header)

    def pieces(self, spark: SparkSession, attempt: Attempt, written: Written, clock: float) -> list[Piece]:
        """What was written as pieces of parts, with their rows where the rolling policy or a check asks for them."""
        folder = join(self._layout.attempt(attempt), DATA)
        paths = [join(folder, entry.name) for _, entry in written.files]
        counts: Sequence[int | None] = [None] * len(paths)
        policy = self._options.rolling
        if written.counts is not None:
            counts = written.counts
        elif policy is not None and policy.max_rows is not None:
            counts = self._rows_of_each(spark, paths, written.rows)
        return [
            Piece(attempt.epoch, bucket, entry.name, entry.length, rows, clock, written.shape)
            for (bucket, entry), rows in zip(written.files, counts, strict=True)
            if entry.length
        ]

    def _rows_of_each(self, spark: SparkSession, paths: Sequence[str], all_rows: int) -> list[int]:
        """By what is known already, else by the footers, else by a job of Spark's, which reads the files."""
        format_ = self._options.format
        if len(paths) == 1 and format_ not in LINES_ARE_NOT_ROWS:
            return [all_rows]
        return self._rows_by_footers(spark, paths)

    def _rows_by_footers(self, spark: SparkSession, paths: Sequence[str]) -> list[int]:
        format_ = self._options.format
        if format_ in columnar.FORMATS and len(paths) <= FEW:
            try:
                return columnar.Columnar(spark).rows(format_, paths)
            except OSError as fault:  # an encrypted footer, to which Spark has the key
                log.debug("rows are counted by a job: %s", fault)
        return joining.rows_of(spark, format_, paths)

    def writer(self, frame: DataFrame, format_: str) -> DataFrameWriter:
        """Spark's writer with this sink's options; for pieces and for what they are merged into."""
        writer = frame.write.format(joining.source_of(format_)).mode("overwrite").options(**self._options.writer)
        writer = writer.option(SUCCESS_FILES, "false")  # nobody looks for them here
        if self._options.compression:
            writer = writer.option("compression", self._options.compression)
        if self._options.rolling is not None and format_ == "csv":
            writer = writer.option("header", "false")  # once in a part, not in each piece
        return writer

    def _save(self, rows: DataFrame, folder: str) -> tuple[Tally | None, str, str | None]:
        """Let Spark write; what it counted, unless the files' footers will tell it for less, the shape of what was
        written, and the header that an audit will ask for.
        """
        from pyspark.errors import AnalysisException, IllegalArgumentException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        options = self._options
        try:
            extra = bucketing.columns(rows, options.buckets)
            frame = rows.withColumns(extra) if extra else rows
            if options.drop_bucket_columns and options.buckets:
                frame = frame.drop(*(b for b in options.buckets if isinstance(b, str)))
            counter = None if self._counts_by_footers(rows.sparkSession, folder) else Observation()
            if counter is not None:
                sums = [f.count(f.lit(1)).alias(digests.ROWS)]
                if options.digest:
                    sums = digesting.measure(frame.drop(*extra), options.format, options.writer).sums()
                frame = frame.observe(counter, *sums)
            writer = self.writer(frame, options.format)
            if extra:
                writer = writer.partitionBy(*extra)
            if options.most_rows is not None:
                writer = writer.option("maxRecordsPerFile", options.most_rows)
            writer.save(spark_path(folder))
            shape = self._shape(frame.drop(*extra), folder)
            header = self._header(frame.drop(*extra), folder) if options.digest else None
        except AnalysisException as fault:
            raise self._bad_rows(fault.getMessage()) from fault
        except IllegalArgumentException as fault:
            raise OptionError(options.title, [f"Spark's writer says: {fault.getMessage()}"]) from fault
        except Py4JError as fault:
            kind, told = avro.complaint(fault) or ("", "")
            if kind == avro.BAD_OPTION:
                raise OptionError(options.title, [f"Spark's writer says: {told}"]) from fault
            if told:
                raise self._bad_rows(told) from fault
            raise
        return None if counter is None else digests.tally(counter.get), shape, header

    def _bad_rows(self, told: str) -> BadRows:
        return BadRows(
            f"sink {self._options.name!r}: Spark cannot write this frame as {self._options.format}: {told}. Nothing of "
            "the epoch was written"
        )

    def _shape(self, frame: DataFrame, folder: str) -> str:
        """What the files look like inside; and, for CSV, what a part begins with."""
        if self._options.rolling is None:
            return ""
        facts = {**self._options.writer, "compression": self._options.compression or ""}
        shape = joining.shape_of(frame, self._options.format, facts)
        self.schemas[shape] = frame.schema
        if self._options.has_header and shape not in self.headers:
            beside = f"{folder}-header"
            self.headers[shape] = joining.header_of(frame, lambda f: self.writer(f, "csv"), self._files, beside)
        return shape

    def _header(self, frame: DataFrame, folder: str) -> str | None:
        """The line that CSV files begin with, as far as an audit has to take it out."""
        if not self._options.has_header:
            return None
        known = frame.schema.json()
        if known not in self._audit_headers:
            plain = joining.header_of(
                frame, lambda f: self.writer(f, "csv").option("compression", "none"), self._files, f"{folder}-header"
            )
            self._audit_headers[known] = plain.decode().removesuffix("\n")
        return self._audit_headers[known]

    def _counts_by_footers(self, spark: SparkSession, folder: str) -> bool:
        """Whether rows need not be counted on the way: what has been written will tell for less, and tells it all."""
        if self._options.digest or self._options.encrypts:
            return False
        if is_local(folder):
            return self._options.format == "parquet" and footers.tell_all(spark, folder)
        return self._options.format in columnar.FORMATS and self._very_few and folder.startswith("hdfs:")

    def _read_footers(
        self, spark: SparkSession, folder: str, found: Sequence[tuple[str, Entry]], counted: Tally | None
    ) -> list[int] | None:
        """The rows of each file by their footers: where nobody has counted, or to compare."""
        paths = [join(folder, entry.name) for _, entry in found]
        if is_local(folder):
            readable = self._options.format == "parquet" and not self._options.encrypts
            return footers.rows_of(spark, paths) if readable else None
        return self._rows_by_footers(spark, paths) if counted is None else None

    def _count(
        self, found: Sequence[tuple[str, Entry]], counted: Tally | None, footer_counts: Sequence[int] | None
    ) -> int | None:
        """How many rows were staged; None if some that were written are missing."""
        if footer_counts is None:
            assert counted is not None  # by one of the two
            return None if counted.rows and not found else counted.rows
        there = sum(footer_counts)
        if counted is None:  # without buckets even an empty frame makes a file
            return there if found or self._options.buckets else None
        return there if there == counted.rows else None

    def _found(self, staged: Iterable[Entry]) -> list[tuple[str, Entry]]:
        """Each file that Spark's writer committed, with the folder of its bucket below the target."""
        found: list[tuple[str, Entry]] = []
        for entry in staged:
            *folders, file = entry.name.split("/")
            if file.startswith(("_", ".")) or "_temporary" in folders:
                continue
            buckets = zip(self._options.buckets, folders, strict=True)
            named = [self._bucket_folder(bucket, folder) for bucket, folder in buckets]
            found.append(("".join(f"{folder}/" for folder in named), entry))
        return found

    def _bucket_folder(self, bucket: AnyBucket, staged: str) -> str:
        value = decode(staged.partition("=")[2])
        key = folder_of(bucket)
        if self._options.drop_bucket_columns and isinstance(bucket, str) and not bucketing.survives(value, key):
            raise BadRows(
                f"sink {self._options.name!r}: a row's {bucket!r} is {'empty' if not value.text else 'too long'} for a "
                "folder's name, and the files do not hold the column. Nothing of the epoch was written. Set "
                "drop_bucket_columns=False, or clean the column before"
            )
        return bucketing.folder_name(key, value)
