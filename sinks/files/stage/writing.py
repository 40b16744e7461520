"""The first phase: Spark's own writer puts the epoch's files where no reader looks, and they are measured."""

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
from epochal.sinks.spark.write_counts import WriteCounts
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, OptionError, Refused
from epochal.txn.files import Entry, is_local, join
from epochal.txn.model import Attempt
from epochal.txn.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("epochal")

LINES_ARE_NOT_ROWS = ("csv", "text")  # a value may have several, and a policy counts lines of these
FEW = 100  # footers that the driver reads itself rather than start a job
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

    `write` keeps to the attempt's folder, and returns when the files are there, as many and as long as Spark says that
    it wrote, and synced; else it raises. `headers` (what a joined file begins with) and `schemas` are
    by shape: those of all that was written so far.
    """

    def __init__(self, options: FileOptions, files: SinkFiles, layout: Layout) -> None:
        self._options, self._files, self._layout = options, files, layout
        self.headers: dict[str, bytes] = {}
        self.schemas: dict[str, StructType] = {}
        self._audit_headers: dict[str, str] = {}  # by schema

    def write(self, attempt: Attempt, rows: DataFrame) -> Written:
        """Let Spark write the staged files, and see that they are there."""
        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        failpoints.hit("before-write")
        wrote, tally, shape, header = self._save(rows, folder)
        failpoints.hit("after-write")
        found = self._found(self._files.walk(folder))
        if wrote.rows == 0:
            found = []  # Spark writes a file for an empty frame too
        whole = wrote.fits(entry.length for _, entry in found) and (tally is None or tally.rows == wrote.rows)
        counts = self._read_footers(rows.sparkSession, folder, found) if whole else None
        if not whole or (counts is not None and sum(counts) != wrote.rows):
            raise Refused(
                f"sink {self._options.name!r}: the rows of epoch {attempt.epoch} that Spark wrote to {home} are not "
                "there, or not all of them. Do the driver and the executors see the same file system? Nothing of the "
                "epoch was published"
            )
        self._files.sync_all([join(folder, entry.name) for _, entry in found], within=self._layout.target)
        digest = tally.digest if tally is not None else None
        return Written(found, wrote.rows, counts, shape, digest, header)

    def pieces(self, spark: SparkSession, attempt: Attempt, written: Written, clock: float) -> list[Piece]:
        """What was written as pieces of parts, with their rows where the rolling policy or a check asks for them."""
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
        """The rows of each file, else by a job of Spark's, which reads the files."""
        format_ = self._options.format
        if format_ in columnar.FORMATS and len(paths) <= FEW:
            try:
                return columnar.Columnar(spark).rows(format_, paths)
            except OSError as fault:  # an encrypted footer, to which Spark has the key
                log.debug("rows are counted by a job: %s", fault)
        return joining.rows_of(spark, format_, paths)

    def writer(self, frame: DataFrame, format_: str) -> DataFrameWriter:
        """Spark's writer with this sink's options; for pieces and for what they are merged into."""
        writer = (
            frame.write.format(joining.source_of(format_)).mode("overwrite").options(**self._options.writer_options)
        )
        writer = writer.option(SUCCESS_FILES, "false")  # nobody looks for them here
        if self._options.compression:
            writer = writer.option("compression", self._options.compression)
        if self._options.rolling is not None and format_ == "csv":
            writer = writer.option("header", "false")  # once in a part, not in each piece
        return writer

    def _save(self, rows: DataFrame, folder: str) -> tuple[WriteCounts, RowDigest | None, str, str | None]:
        """Let Spark write; what it says of it, the digest if there is to be one, the shape of what was written, and
        the header that an audit will ask for.
        """
        from pyspark.errors import AnalysisException, IllegalArgumentException
        from pyspark.sql import Observation

        options = self._options
        try:
            extra = bucketing.columns(rows, options.buckets)
            frame = rows.withColumns(extra) if extra else rows
            if options.drops_bucket_columns and options.buckets:
                frame = frame.drop(*(b for b in options.buckets if isinstance(b, str)))
            counter = Observation() if options.digest else None
            if counter is not None:
                sums = digesting.measure(frame.drop(*extra), options.format, options.writer_options).sums()
                frame = frame.observe(counter, *sums)
            writer = self.writer(frame, options.format)
            if extra:
                writer = writer.partitionBy(*extra)
            if options.most_rows is not None:
                writer = writer.option("maxRecordsPerFile", options.most_rows)
            place = spark_path(folder)
            wrote = write_counts.counted(rows.sparkSession, place, lambda: writer.save(place))
            shape = self._shape(frame.drop(*extra), folder)
            header = self._header(frame.drop(*extra), folder) if options.digest else None
        except AnalysisException as fault:
            raise self._bad_rows(fault.getMessage()) from fault
        except IllegalArgumentException as fault:
            raise OptionError(repr(options), [f"Spark's writer says: {fault.getMessage()}"]) from fault
        except Py4JError as fault:
            kind, told = avro.complaint(fault) or ("", "")
            if kind == avro.BAD_OPTION:
                raise OptionError(repr(options), [f"Spark's writer says: {told}"]) from fault
            if told:
                raise self._bad_rows(told) from fault
            raise
        return wrote, None if counter is None else digests.tally(counter.get), shape, header

    def _bad_rows(self, told: str) -> BadRows:
        return BadRows(
            f"sink {self._options.name!r}: Spark cannot write this frame as {self._options.format}: {told}. Nothing of "
            "the epoch was written"
        )

    def _shape(self, frame: DataFrame, folder: str) -> str:
        """What the files look like inside; and, for CSV, what a part begins with."""
        if self._options.rolling is None:
            return ""
        facts = {**self._options.writer_options, "compression": self._options.compression or ""}
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

    def _read_footers(self, spark: SparkSession, folder: str, found: Sequence[tuple[str, Entry]]) -> list[int] | None:
        """The rows of each file, where pieces of parts want them and they are read in no time."""
        if self._options.rolling is None or not found or not is_local(folder):
            return None
        if self._options.format != "parquet" or self._options.encrypts:
            return None
        return footers.rows_of(spark, [join(folder, entry.name) for _, entry in found])

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
