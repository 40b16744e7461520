"""Rows of epochs as files that no reader looks for: for a sink whose store cannot hold rows that are not visible.

::

    STAGING/LINEAGE/ATTEMPT/data/*.parquet     what Spark's executors have written of one attempt at an epoch

Write them while the epoch is staged, read them once it is decided, delete them when the store has the rows. STAGING is
a folder that the user names, or one beside the stream's journal. Driver and executors must both reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal.sinks.spark import footers, write_counts
from epochal.sinks.spark.reasons import as_bad_rows
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.hadoop import running_session, session_for
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.register import safe_name
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.targets import check_writable, resolve_target
from epochal.txn.errors import PUT_BACK, DataLost, Refused
from epochal.txn.files import Files, below, is_local, join
from epochal.txn.model import Attempt, Json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

# What reads them may record its progress by file, and resume with the next one.
ROWS_PER_FILE = 100_000
ROWS_PER_BATCH = 10_000
# They are read once, soon, and as a whole: dictionaries and statistics would cost more time than they save.
UNREADABLE = "[FAILED_READ_FILE"  # Spark's condition, with what may follow it
FORMAT = {
    "parquet.enable.dictionary": "false",
    "parquet.column.statistics.enabled": "false",
    "parquet.size.statistics.enabled": "false",
    "parquet.writer.version": "v1",
}


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """The files of an attempt, as its handle keeps them."""

    home: str = ""  # the folder in which attempts are staged
    files: tuple[tuple[str, int, int], ...] = ()  # name, bytes, rows
    sums: Mapping[str, Any] = field(default_factory=dict, compare=False)  # the aggregates that were asked for

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.files)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)

    def to_json(self) -> dict[str, Json]:
        """For the handle; without the sums."""
        return {"home": self.home, "files": [list(file) for file in self.files]}

    @staticmethod
    def from_json(value: Any) -> StagedEpoch:
        files = tuple((str(name), int(size), int(rows)) for name, size, rows in value["files"])
        return StagedEpoch(str(value["home"]), files)


class StagedFiles:
    """The staging area of one sink. Rows of an attempt may be written again, and removed as often as one likes.

    `staging` is the folder that the user named; None for the one beside the journal.
    """

    def __init__(self, sink: str, staging: str | None = None) -> None:
        self._sink, self._staging = sink, staging
        self._folders: dict[str, tuple[SinkFiles, str]] = {}  # a cache of resolved paths

    @property
    def folder(self) -> str | None:
        """The folder that the user named, in full, for the journal."""
        return None if self._staging is None else self.place("")[1]

    def described(self, description: Mapping[str, Json]) -> dict[str, Json]:
        """A sink's description for the journal, with the folder in full, or without one if the user named none."""
        others = {name: value for name, value in description.items() if name != "staging"}
        return others if self._staging is None else {**others, "staging": self.folder}

    def check_writable(self, frame: DataFrame) -> None:
        """Refuse a folder, named by the user, to which this session cannot write."""
        if self._staging is not None:
            check_writable(self._sink, self._staging, frame.sparkSession)

    def write(self, attempt: Attempt, frame: DataFrame, sums: Sequence[Column] = ()) -> StagedEpoch:
        """Let Spark write an attempt's rows, durably, with these aggregates of them, which have names, in the same job.

        BadRows if Spark's analysis or a check of epochal's own refuses the rows.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        files, home = self.place_for(frame, attempt.scratch)
        folder = self._folder(home, attempt)
        place = spark_path(folder)
        watched = [f.count(f.lit(1)).alias(write_counts.ROWS), *sums] if sums else None
        try:
            wrote = write_counts.written(frame, place, lambda rows: save(rows, place), watched)
        except PySparkException as fault:
            if (known := as_bad_rows(self._sink, fault)) is None:
                raise
            raise known from fault
        listed = staged_in(files, folder) if wrote.counts.rows or not wrote.counts.measured else {}
        complete = wrote.counts.fits(listed.values())
        staged = with_row_counts(frame.sparkSession, folder, listed) if complete else ()
        if not complete or wrote.counts.rows != sum(count for _, _, count in staged):
            raise not_all_there(self._sink, folder)
        files.sync_all([join(folder, name) for name, _, _ in staged], within=self.within(home))
        return StagedEpoch(home, staged, wrote.sums)

    def check(self, attempt: Attempt, staged: StagedEpoch) -> None:
        """DataLost unless every file is there as it was written."""
        files, home = self.place_of(attempt, staged.home)
        folder = self._folder(home, attempt)
        for name, size, _ in staged.files:
            path = below(folder, name)
            if files.length(path) != size:
                raise DataLost(
                    f"sink {self._sink!r}: {path} should have {size} bytes: another program has removed or changed it. "
                    f"Epoch {attempt.epoch} is decided and cannot be written without it. {PUT_BACK}"
                )

    def read(self, attempt: Attempt, staged: StagedEpoch) -> Iterator[pa.RecordBatch]:
        """The rows, in the order in which Spark wrote them: task by task, and within a task as the frame has them.

        DataLost, at that place, if a file is no Parquet file any more.
        """
        files, home = self.place_of(attempt, staged.home)
        folder = self._folder(home, attempt)
        for name, _, _ in sorted(staged.files):
            yield from batches_in(files, below(folder, name), f"sink {self._sink!r}: ")

    def by_file(self, attempt: Attempt, staged: StagedEpoch, *, name: str, row: str) -> dict[str, DataFrame] | None:
        """A frame of each file, for work that executors do; None if no Spark runs that could do it.

        Columns of these names have the file's name and the row's number in it. A task has a file's rows in their order.
        """
        _, home = self.place_of(attempt, staged.home)
        spark = running_session() if is_local(home) else session_for(home)
        if spark is None or is_connect(spark) or spark.sparkContext._jsc is None:
            return None
        folder = self._folder(home, attempt)
        paths = {file: spark_path(below(folder, file)) for file, _, _ in sorted(staged.files)}
        more = [f"_metadata.file_name AS {name}", f"_metadata.row_index AS {row}"]
        schema = spark.read.parquet(next(iter(paths.values()))).schema
        read = spark.read.schema(schema)
        return {file: read.parquet(path).selectExpr("*", *more).coalesce(1) for file, path in paths.items()}

    @contextmanager
    def read_by_executors(self, attempt: Attempt, staged: StagedEpoch) -> Iterator[None]:
        """A block in which executors read frames of `by_file`: DataLost if a file is no Parquet file any more."""
        files, home = self.place_of(attempt, staged.home)
        folder = self._folder(home, attempt)
        with read_by_spark(files, [below(folder, name) for name, _, _ in staged.files], f"sink {self._sink!r}: "):
            yield

    def delete(self, attempt: Attempt, staged: StagedEpoch | None = None) -> None:
        """Remove what was staged of an attempt, completely or in part; nothing to do if nothing is there."""
        files, home = self.place_of(attempt, "" if staged is None else staged.home)
        files.delete(home_of(home, attempt))

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        """The attempts that have staged something."""
        files, home = self.place(scratch)
        names = files.names(join(home, safe_name(lineage)))
        found = (Attempt.from_key(lineage, name, scratch=scratch) for name in names)
        return [attempt for attempt in found if attempt is not None]

    def connect_faults(self) -> list[str]:
        """What keeps it from Spark Connect."""
        if self._staging is None or is_local(self._staging):
            return []
        return [f"staging={self._staging!r}: must be on a local disk of the server"]

    def place(self, scratch: str) -> tuple[SinkFiles, str]:
        """Where attempts are staged: in the folder that the user named, or in the stream's scratch folder."""
        if self._staging is None and not scratch:
            raise Refused(f"sink {self._sink!r}: no folder to stage in. Use it in an EpochWriter, or set staging=")
        return self._resolved(self._staging or spark_path(join(scratch, self._sink)))

    def place_for(self, frame: DataFrame, scratch: str) -> tuple[SinkFiles, str]:
        """`place`, refused where this frame's session cannot stage."""
        files, home = self.place(scratch)
        if is_connect(frame.sparkSession) and not is_local(home):
            raise Refused(
                f"sink {self._sink!r}: on Spark Connect rows are staged on a local disk of the server, not in {home}. "
                "Nothing was written. Set staging='file:/...'"
            )
        return files, home

    def place_of(self, attempt: Attempt, staged_in: str) -> tuple[SinkFiles, str]:
        """Where an attempt is staged: in today's folder, or in the recorded one if the option was changed since.

        Today's comes first: a checkpoint that was moved as a whole has its staged files with it.
        """
        files, home = self.place(attempt.scratch)
        if not staged_in or staged_in == home or files.names(home_of(home, attempt)):
            return files, home
        return self._resolved(spark_path(staged_in))

    def _resolved(self, folder: str) -> tuple[SinkFiles, str]:
        if folder not in self._folders:
            self._folders[folder] = resolve_target(folder)
        return self._folders[folder]

    def _folder(self, home: str, attempt: Attempt) -> str:
        return join(home_of(home, attempt), "data")

    def within(self, home: str) -> str:
        """The folder below which new folders are synced: the checkpoint, or the parent of the folder that was named."""
        return _above(home) if self._staging is not None else _above(_above(home))


def batches_in(files: Files, path: str, sink: str = "") -> Iterator[pa.RecordBatch]:
    """The rows of a staged file. DataLost if it is no Parquet file any more; `sink` begins the error."""
    from pyarrow import ArrowException, BufferReader
    from pyarrow.parquet import ParquetFile

    source = path if is_local(path) else BufferReader(files.read(path))
    try:
        with ParquetFile(source) as file:
            yield from file.iter_batches(ROWS_PER_BATCH)
    except (ArrowException, OSError, ValueError) as fault:  # names that are no UTF-8 are ValueErrors
        if isinstance(fault, OSError) and fault.errno is not None:
            raise  # the disk's own
        raise DataLost(
            f"{sink}{path} cannot be read as the Parquet file that was staged: another program has changed it. Its "
            f"epoch is decided and cannot be written without it. {PUT_BACK}"
        ) from fault


@contextmanager
def read_by_spark(files: Files, paths: Iterable[str], sink: str = "") -> Iterator[None]:
    """A block in which Spark reads staged files. DataLost, not Spark's error, if one is no Parquet file any more."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as fault:  # a SparkException is one of Java's: PySpark has no such class
        if UNREADABLE in str(fault):
            for path in paths:  # if none of them was changed, the file system was away
                for _ in batches_in(files, path, sink):
                    pass
        raise


def home_of(staging: str, attempt: Attempt) -> str:
    """The folder in which an attempt is staged."""
    return join(staging, safe_name(attempt.lineage), attempt.key)


def save(frame: DataFrame, folder: str) -> None:
    """Let Spark write staged files."""
    writer = frame.write.mode("overwrite").options(maxRecordsPerFile=ROWS_PER_FILE, compression="snappy")
    writer.options(**FORMAT).parquet(folder)


def staged_in(files: Files, folder: str) -> dict[str, int]:
    """The staged files, and how long each is."""
    return {e.name: e.length for e in files.walk(folder) if not e.name.startswith(("_", "."))}


def with_row_counts(spark: SparkSession, folder: str, files: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
    """(name, bytes, rows) of each staged file that has rows."""
    if is_local(folder):
        counts = dict(zip(files, footers.row_counts(spark, [join(folder, name) for name in files]), strict=True))
    else:
        counted = spark.read.parquet(spark_path(folder)).selectExpr("_metadata.file_name AS n").groupBy("n").count()
        counts = {row["n"]: row["count"] for row in counted.collect()} if files else {}
    return tuple((name, size, counts[name]) for name, size in files.items() if counts.get(name))


def not_all_there(sink: str, folder: str) -> Refused:
    """The error for files that Spark wrote and this process does not see."""
    return Refused(
        f"sink {sink!r}: not all rows that Spark wrote to {folder} are there. Do the driver and the executors see the "
        "same file system? Nothing of the epoch was written"
    )


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"
