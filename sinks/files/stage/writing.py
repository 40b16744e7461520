"""The first phase: Spark's own writer writes the epoch's files where no reader looks, and they are checked."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from epochal.sinks.files.formats import avro, columnar, digesting, joining
from epochal.sinks.files.layout import DATA, Layout
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies import buckets as bucketing
from epochal.sinks.files.policies.buckets import AnyBucket, folder_of
from epochal.sinks.files.policies.rolling import Piece
from epochal.sinks.spark import digests, footers, write_counts
from epochal.sinks.spark.values import decode
from epochal.sinks.spark.write_counts import Written
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, OptionError, Refused
from epochal.txn.files import Entry, is_local, join
from epochal.txn.model import Attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("epochal")

LINES_ARE_NOT_ROWS = ("csv", "text")  # a value may have several lines, and a rolling policy counts lines of these
FEW = 100  # footers that the driver reads itself; for more it starts a job
SUCCESS_FILES = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files that Spark has written for one attempt."""

    files: Sequence[tuple[str, Entry]]  # each with its bucket's folder below the target; none if there are no rows
    rows: int
    counts: Sequence[int] | None  # the rows of each file, if their footers were read
    shape: str  # of all the files; empty where nothing is joined
    digest: str | None
    header: str | None  # the first line of the files, if an audit must not count it


class Stager:
    """Stages the rows of epochs of one target.

    `write` writes only to the attempt's folder. It returns once the files are there and synced, with the number and
    the lengths that Spark reported; else it raises. `headers` (the first bytes of a joined file) and `schemas` are by
    shape, for all that was written so far.
    """

    def __init__(self, options: FileOptions, files: SinkFiles, layout: Layout) -> None:
        self._options, self._files, self._layout = options, files, layout
        self.headers: dict[str, bytes] = {}
        self.schemas: dict[str, StructType] = {}
        self._audit_headers: dict[str, str] = {}  # by schema

    def write(self, attempt: Attempt, rows: DataFrame) -> WrittenFiles:
        """Let Spark write the staged files, and check that they are there."""
        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        failpoints.hit("before-write")
        wrote, shape, header = self._save(rows, folder)
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
        self._files.sync_all([join(folder, entry.name) for _, entry in found], within=self._layout.target)
        digest = summed.digest if summed is not None else None
        return WrittenFiles(found, wrote.counts.rows, counts, shape, digest, header)

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
            counts = self._rows_by_footers(spark, paths)
        return [
            Piece(attempt.epoch, bucket, entry.name, entry.length, rows, clock, written.shape)
            for (bucket, entry), rows in zip(written.files, counts, strict=True)
            if entry.length
        ]

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

    def _save(self, rows: DataFrame, folder: str) -> tuple[Written, str, str | None]:
        """Let Spark write; its counts and sums, the shape, and the header for audits."""
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
                writer.save(place)

            sums = None
            if options.digest or (is_connect(rows.sparkSession) and options.format in digesting.LINES):
                sums = digesting.measure(frame.drop(*extra), options.format, options.writer_options).sums()
            wrote = write_counts.written(frame, place, save, sums)
            shape = self._shape(frame.drop(*extra), folder)
            header = self._header(frame.drop(*extra), folder) if options.digest else None
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
        return wrote, shape, header

    def _bad_rows(self, reason: str) -> BadRows:
        return BadRows(
            f"sink {self._options.name!r}: Spark cannot write this frame as {self._options.format}: {reason}. Nothing "
            "of the epoch was written"
        )

    def _shape(self, frame: DataFrame, folder: str) -> str:
        """The shape of the files. For CSV it also records the header of a part."""
        if self._options.rolling is None:
            return ""
        facts = {**self._options.writer_options, "compression": self._options.compression or ""}
        shape = joining.shape_of(frame, self._options.format, facts)
        self.schemas[shape] = frame.schema
        if self._options.has_header and shape not in self.headers:
            scratch = f"{folder}-header"
            self.headers[shape] = joining.header_of(frame, lambda f: self.writer(f, "csv"), self._files, scratch)
        return shape

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
