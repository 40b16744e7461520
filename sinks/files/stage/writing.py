"""The first phase: Spark's own writer writes the epoch's files where no reader looks, and they are checked.

Each task moves its own files out of its scratch folder when it is done. Spark's default, by which the driver moves the
files of all tasks at the end, takes two requests a file one after the other: with thousands of files that is most of an
epoch. What speaks against the other way does no harm here. A task that dies while it moves leaves a part of its files:
nobody reads them, the task that repeats it replaces them, and what is there is compared with what the tasks report.
A task that Spark has given up, and that goes on, may replace or remove files: so the folder gets another name before
anything in it is looked at (`_seal`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from epochal.sinks.files.formats import avro, columnar, digesting, joining
from epochal.sinks.files.layout import DATA, WRITTEN, Layout
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies import buckets as bucketing
from epochal.sinks.files.policies.buckets import AnyBucket, folder_of
from epochal.sinks.files.policies.rolling import Piece
from epochal.sinks.spark import digests, footers, write_counts
from epochal.sinks.spark.names import ending_of_written
from epochal.sinks.spark.values import decode
from epochal.sinks.spark.write_counts import Written
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, OptionError, Refused
from epochal.txn.files import Entry, is_local, join
from epochal.txn.model import Attempt
from epochal.txn.object_paths import is_object_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("epochal")

LINES_ARE_NOT_ROWS = ("csv", "text")  # a value may have several lines, and a rolling policy counts lines of these
PLAIN_LINES = (".json", ".csv", ".txt")  # not compressed: a line is what ends with a newline
READ_AT_MOST = 16 << 20  # bytes of an epoch whose lines the driver counts; for more it starts a job
FEW = 100  # footers that the driver reads itself; for more it starts a job
SUCCESS_FILES = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
BY_TASKS = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}  # files are moved by the tasks, not by the driver


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files that Spark has written for one attempt."""

    files: Sequence[tuple[str, Entry]]  # each with its bucket's folder below the target; none if there are no rows
    rows: int
    counts: Sequence[int] | None  # the rows of each file, if their footers were read
    shape: str  # of all the files; empty where nothing is joined
    digest: str | None
    header: str | None  # the first line of the files, if an audit must not count it
    part_headers: Mapping[str, bytes] = field(default_factory=dict)  # by shape: what a part begins with, and no piece


class Stager:
    """Stages the rows of epochs of one target.

    `write` writes only to the attempt's folder. It returns once the files are there, with the number and the lengths
    that Spark reported; else it raises. What stays of them is synced later, at once (`sync`). What it keeps from one
    epoch to the next are caches, which save jobs of Spark: an epoch or a roll comes out the same without them.
    """

    def __init__(self, options: FileOptions, files: SinkFiles, layout: Layout) -> None:
        self._options, self._files, self._layout = options, files, layout
        self.schemas: dict[str, StructType] = {}  # a cache, by shape: else Spark reads them from the files it merges
        self._part_headers: dict[str, bytes] = {}  # a cache, by shape
        self._audit_headers: dict[str, str] = {}  # a cache, by schema

    def write(self, attempt: Attempt, rows: DataFrame) -> WrittenFiles:
        """Let Spark write the staged files, and check that they are there."""
        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        # In a bucket a move is a copy of each object, by whomever.
        written = folder if is_object_store(folder) else join(home, WRITTEN)
        failpoints.hit("before-write")
        wrote, shape, header, part_headers = self._save(rows, written)
        if written != folder:
            self._seal(written, folder)
        failpoints.hit("after-write")
        found = self._found(self._files.walk(folder))
        counts = None
        whole = wrote.counts.fits(entry.length for _, entry in found)
        if not wrote.counts.measured:
            counts = self._count(rows, folder, found)
            whole = sum(counts) == self._expected(wrote, rows.columns, len(found))
        if wrote.counts.rows == 0:
            found, counts = [], None  # Spark writes a file for an empty frame too
        if whole and counts is None:
            counts = self._read_footers(rows.sparkSession, folder, found)
            whole = counts is None or sum(counts) == wrote.counts.rows
        summed = digests.row_digest(wrote.sums) if self._options.digest else None
        if not whole or (summed is not None and summed.rows != wrote.counts.rows):
            raise Refused(
                f"sink {self._options.name!r}: the rows of epoch {attempt.epoch} that Spark wrote to {home} are not "
                "there, or not all of them. Do the driver and the executors see the same file system? Nothing of the "
                "epoch was published"
            )
        digest = summed.digest if summed is not None else None
        return WrittenFiles(found, wrote.counts.rows, counts, shape, digest, header, part_headers)

    def _seal(self, written: str, folder: str) -> None:
        """Give what the tasks have written a name that none of them knows: a task that goes on finds nothing there."""
        try:
            self._files.move_folder(written, folder)
        except FileExistsError:  # an earlier try of this start has come so far
            self._files.delete(folder)
            self._files.move_folder(written, folder)
        except FileNotFoundError:  # the executors have written elsewhere: then nothing must be there
            self._files.delete(folder)

    def sync(self, attempt: Attempt, names: Iterable[str]) -> None:
        """Bring files of the attempt to stable storage."""
        home = self._layout.attempt(attempt)
        self._files.sync_all([join(home, name) for name in names], within=self._layout.target)

    def pieces(self, spark: SparkSession, attempt: Attempt, written: WrittenFiles, clock: float) -> list[Piece]:
        """The written files as pieces of parts, with row counts if the rolling policy or a check needs them."""
        folder = join(self._layout.attempt(attempt), DATA)
        paths = [join(folder, entry.name) for _, entry in written.files]
        counts: Sequence[int | None] = [None] * len(paths)
        policy = self._options.rolling
        if written.counts is not None:
            counts = written.counts
        elif len(paths) == 1 and self._options.format not in LINES_ARE_NOT_ROWS:
            counts = [written.rows]
        elif policy is not None and policy.max_rows is not None:
            counts = self._files.line_counts(paths) if self._are_short(written) else self._rows_by_footers(spark, paths)
        return [
            Piece(attempt.epoch, bucket, entry.name, entry.length, rows, clock, written.shape)
            for (bucket, entry), rows in zip(written.files, counts, strict=True)
            if entry.length
        ]

    def _are_short(self, written: WrittenFiles) -> bool:
        """Whether the driver counts lines sooner than a job would: there may be thousands of files of a few rows."""
        plain = all(ending_of_written(entry.name) in PLAIN_LINES for _, entry in written.files)
        return plain and sum(entry.length for _, entry in written.files) <= READ_AT_MOST

    def _rows_by_footers(self, spark: SparkSession, paths: Sequence[str]) -> list[int]:
        """The rows of each file, from footers if the driver can read them, else by a Spark job."""
        format_ = self._options.format
        if format_ in columnar.FORMATS and len(paths) <= FEW:
            try:
                return columnar.Columnar(spark).rows(format_, paths)
            except OSError as fault:  # the footer is encrypted, and Spark has the key
                log.debug("rows counted by a job", extra={"error": str(fault)})
        return joining.row_counts(spark, format_, paths)

    def writer(self, frame: DataFrame, format_: str) -> DataFrameWriter:
        """Spark's writer with this sink's options, for pieces and for merged parts."""
        writer = (
            frame.write.format(joining.source_of(format_)).mode("overwrite").options(**self._options.writer_options)
        )
        writer = writer.option(SUCCESS_FILES, "false")  # no reader looks here
        if self._options.compression:
            writer = writer.option("compression", self._options.compression)
        if self._options.rolling is not None and format_ == "csv":
            writer = writer.option("header", "false")  # once in a part, not in each piece
        return writer

    def _save(self, rows: DataFrame, folder: str) -> tuple[Written, str, str | None, dict[str, bytes]]:
        """Let Spark write; its counts and sums, the shape, the header for audits, and that of a part by its shape."""
        from pyspark.errors import AnalysisException, IllegalArgumentException

        options = self._options
        try:
            extra = bucketing.columns(rows, options.buckets)
            frame = rows.withColumns(extra) if extra else rows
            if options.drops_bucket_columns and options.buckets:
                frame = frame.drop(*(b for b in options.buckets if isinstance(b, str)))
            place = spark_path(folder)

            def save(watched: DataFrame) -> None:
                writer = self.writer(watched, options.format)
                if extra:
                    writer = writer.partitionBy(*extra)
                if options.most_rows is not None:
                    writer = writer.option("maxRecordsPerFile", options.most_rows)
                if not is_object_store(folder):
                    writer = writer.options(**BY_TASKS)
                writer.save(place)

            sums = None
            if options.digest or (is_connect(rows.sparkSession) and options.format in digesting.LINES):
                sums = digesting.measure(frame.drop(*extra), options.format, options.writer_options).sums()
            wrote = write_counts.written(frame, place, save, sums)
            shape = self._shape(frame.drop(*extra))
            header = self._header(frame.drop(*extra), folder) if options.digest else None
            part_headers = self._part_header(frame.drop(*extra), shape, folder) if shape else {}
        except AnalysisException as fault:
            raise self._bad_rows(fault.getMessage()) from fault
        except IllegalArgumentException as fault:
            raise OptionError(repr(options), [f"Spark's writer says: {fault.getMessage()}"]) from fault
        except Py4JError as fault:
            kind, reason = avro.complaint(fault) or ("", "")
            if kind == avro.BAD_OPTION:
                raise OptionError(repr(options), [f"Spark's writer says: {reason}"]) from fault
            if reason:
                raise self._bad_rows(reason) from fault
            raise
        return wrote, shape, header, part_headers

    def _bad_rows(self, reason: str) -> BadRows:
        return BadRows(
            f"sink {self._options.name!r}: Spark cannot write this frame as {self._options.format}: {reason}. Nothing "
            "of the epoch was written"
        )

    def _shape(self, frame: DataFrame) -> str:
        """The shape of the files."""
        if self._options.rolling is None:
            return ""
        facts = {**self._options.writer_options, "compression": self._options.compression or ""}
        shape = joining.shape_of(frame, self._options.format, facts)
        self.schemas[shape] = frame.schema
        return shape

    def _part_header(self, frame: DataFrame, shape: str, folder: str) -> dict[str, bytes]:
        """What a part of CSV files begins with."""
        if not self._options.has_header:
            return {}
        if shape not in self._part_headers:
            scratch = f"{folder}-header"
            self._part_headers[shape] = joining.header_of(frame, lambda f: self.writer(f, "csv"), self._files, scratch)
        return {shape: self._part_headers[shape]}

    def _header(self, frame: DataFrame, folder: str) -> str | None:
        """The first line of CSV files, if an audit must not count it."""
        if not self._options.has_header:
            return None
        known = frame.schema.json()
        if known not in self._audit_headers:
            plain = joining.header_of(
                frame, lambda f: self.writer(f, "csv").option("compression", "none"), self._files, f"{folder}-header"
            )
            self._audit_headers[known] = plain.decode().removesuffix("\n")
        return self._audit_headers[known]

    def _count(self, rows: DataFrame, folder: str, found: Sequence[tuple[str, Entry]]) -> list[int]:
        """The rows that are in each file; in text formats, lines."""
        spark, format_ = rows.sparkSession, self._options.format
        paths = [join(folder, entry.name) for _, entry in found]
        if format_ == "parquet" and is_local(folder):
            return footers.row_counts(spark, paths)
        return joining.row_counts(spark, format_, paths)

    def _expected(self, wrote: Written, columns: Sequence[str], files: int) -> int:
        """What `_count` must come to. Files of a format with lines may begin with a header, those of parts do not."""
        if self._options.format not in digesting.LINES:
            return wrote.counts.rows
        header = self._options.has_header and self._options.rolling is None
        return int(wrote.sums.get(digests.LINES) or 0) + files * (1 + "".join(columns).count("\n")) * header

    def _read_footers(self, spark: SparkSession, folder: str, found: Sequence[tuple[str, Entry]]) -> list[int] | None:
        """The rows of each file, if they are pieces of parts and reading their footers is cheap."""
        if self._options.rolling is None or not found or not is_local(folder):
            return None
        if self._options.format != "parquet" or self._options.encrypts:
            return None
        return footers.row_counts(spark, [join(folder, entry.name) for _, entry in found])

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
        if self._options.drops_bucket_columns and isinstance(bucket, str) and not bucketing.survives(value, key):
            raise BadRows(
                f"sink {self._options.name!r}: a row's {bucket!r} is {'empty' if not value.text else 'too long'} for a "
                "folder's name, and the files do not hold the column. Nothing of the epoch was written. Set "
                "drop_bucket_columns=False, or clean the column before"
            )
        return bucketing.folder_name(key, value)
