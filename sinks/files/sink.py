"""Rolling files: an epoch's files are staged by Spark's own writer and published by rename.

Stage writes below ``_epochal/``, which readers pass over, and records each file's length. Commit
is one strict rename a file, then the marker, then the manifest; each step may find that an earlier
try has done it, and accepts that only if the length is the recorded one. If a file is neither
staged nor published, rows are gone: that stops the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from epochal.sinks import enrolment, footers
from epochal.sinks.files import buckets as bucketing
from epochal.sinks.files import manifest
from epochal.sinks.files.buckets import TimeBucket, folder_of
from epochal.sinks.files.layout import DATA, MANIFEST, MARKER, Layout, marker_name, part_name
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.hadoop import resolve
from epochal.sinks.options import Faults
from epochal.sinks.values import decode
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, DataLost, OptionError, Refused
from epochal.txn.files import Entry, Files, is_local, join
from epochal.txn.model import Attempt, Handle, Json, Memory, Outcome, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HANDLE_VERSION = 1
FORMATS = ("parquet", "orc", "json", "csv", "text", "xml")
MARKERS = ("none", "epoch", "bucket")
RESERVED_OPTIONS = {"path": "give it as the first argument", "maxrecordsperfile": "use max_rows_per_file"}


class RollingFileSink:
    """Files of any format that Spark writes, in buckets, each epoch all or nothing.

    >>> RollingFileSink("archive/orders", format="json", bucket_by=["day"], compression="gzip")
    RollingFileSink('archive/orders', format='json', name='files')

    `bucket_by` takes column names and `TimeBucket`s. The rows in the files keep the bucket columns,
    unless `drop_bucket_columns` is set (Hive's way; always so for text, which has one column).
    `marker` makes an empty ``_SUCCESS`` file for each epoch or in each bucket. `options` go to
    Spark's writer as they are.
    """

    def __init__(
        self,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002  # what Spark's users know it as
        bucket_by: Sequence[str | TimeBucket] = (),
        name: str = "files",
        drop_bucket_columns: bool | None = None,
        max_rows_per_file: int | None = None,
        compression: str | None = None,
        marker: str = "none",
        options: Mapping[str, str] | None = None,
    ) -> None:
        faults = Faults(f"RollingFileSink({path!r})")
        faults.check(isinstance(path, str) and path.strip() != "", "path: a folder or URI, not empty")
        faults.one_of("format", format, FORMATS)
        faults.one_of("marker", marker, MARKERS)
        faults.sink_name(name)
        self._buckets = _checked_buckets(bucket_by, faults)
        whole = isinstance(max_rows_per_file, int) and not isinstance(max_rows_per_file, bool) and max_rows_per_file > 0
        faults.check(max_rows_per_file is None or whole, f"max_rows_per_file={max_rows_per_file!r}: a number above 0")
        faults.check(
            compression is None or (isinstance(compression, str) and compression != ""),
            f"compression={compression!r}: the name of a codec, such as 'gzip'",
        )
        faults.check(
            drop_bucket_columns is None or isinstance(drop_bucket_columns, bool),
            f"drop_bucket_columns={drop_bucket_columns!r}: True or False",
        )
        faults.check(
            not (format == "text" and self._buckets and drop_bucket_columns is False),
            "drop_bucket_columns=False: text holds one column, so bucket columns have to be dropped",
        )
        self._options = _checked_options(options, faults)
        faults.done()
        self._given_path = path
        self._format = format
        self._name = name
        self._drop = drop_bucket_columns if drop_bucket_columns is not None else format == "text"
        self._max_rows = max_rows_per_file
        self._compression = compression
        self._marker = marker
        self._bound: tuple[Files, Layout] | None = None

    def __repr__(self) -> str:
        return f"RollingFileSink({self._given_path!r}, format={self._format!r}, name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    def describe(self) -> dict[str, Json]:
        return {"type": "files", "name": self._name, "target": self._place()[1].target, "format": self._format}

    def open(self, lineage: str) -> Memory:
        files, layout = self._place()
        if files.names(layout.spark_metadata):
            raise Refused(
                f"sink {self._name!r}: {layout.target} was written by Spark's own file sink; Spark's readers see only "
                "what its log in _spark_metadata lists, so rows added here would not be read. Nothing was written. "
                "Use another folder, or move _spark_metadata away"
            )
        return manifest.remember(files, layout, lineage)

    def enrol(self, lineage: str, *, adopts: str | None) -> None:
        files, layout = self._place()
        enrolment.enrol(files, layout.lineages, lineage, adopts)

    def stage(self, attempt: Attempt, rows: DataFrame, *, offsets: str) -> Staged:
        files, layout = self._place()
        home = layout.attempt(attempt)
        failpoints.hit("before-write")
        counted = self._write(rows, join(home, DATA))
        failpoints.hit("after-write")
        moves = self._moves(attempt, files.walk(join(home, DATA)))
        count = self._count(rows.sparkSession, home, moves, counted)
        if count is None:
            raise Refused(
                f"sink {self._name!r}: the rows of epoch {attempt.epoch} that Spark wrote to {home} are not there, or "
                "not all of them. Do the driver and the executors see the same file system? Nothing of the epoch was "
                "published"
            )
        if count == 0:
            moves = []  # Spark writes a file for an empty frame too
        for staged, _, _ in moves:
            files.sync(join(home, staged))
        entry = PublishedEpoch(
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            offsets=offsets,
            rows=count,
            files=tuple((target, length) for _, target, length in moves),
        ).encode()
        files.create(join(home, MANIFEST), entry, durable=False)  # PREPARED, which follows, is
        extras: list[tuple[str, str, int]] = []
        for number, target in enumerate(self._marker_names(attempt, moves)):
            files.create(join(home, f"{MARKER}-{number}"), b"", durable=False)
            extras.append((f"{MARKER}-{number}", target, 0))
        body: dict[str, Json] = {
            "target": layout.target,
            "files": [[*move] for move in moves],
            "markers": [[*extra] for extra in extras],
            "manifest": [MANIFEST, layout.manifest_name(attempt), len(entry)],
        }
        return Staged(Handle(HANDLE_VERSION, body), count)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        files, layout = self._place()
        body = self._checked_body(handle, layout)
        home = layout.attempt(attempt)
        (entry,) = _moves_of(body, "manifest")
        known = files.length(join(layout.target, entry[1]))
        if known is not None:
            self._check_same(attempt, manifest.read(files, layout, attempt.lineage, attempt.epoch))
        else:
            folders: set[str] = set()
            for step, moves in (("rename", _moves_of(body, "files")), ("marker", _moves_of(body, "markers"))):
                for move in moves:
                    self._publish(home, move, step, folders)
            # Last: who finds the manifest knows that all of the above has happened.
            self._publish(home, entry, "manifest", folders)
        failpoints.hit("before-cleanup")
        files.delete(home)
        failpoints.hit("after-cleanup")
        return Outcome.COMMITTED if known is None else Outcome.ALREADY_COMMITTED

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        files, layout = self._place()
        files.delete(layout.attempt(attempt))

    def leftovers(self, lineage: str) -> list[Attempt]:
        files, layout = self._place()
        enrolment.sweep(files, layout.lineages)
        found = (Attempt.from_key(lineage, name) for name in files.names(layout.staged(lineage)))
        return [attempt for attempt in found if attempt is not None]

    def _place(self) -> tuple[Files, Layout]:
        """The file system and the full path, found when first needed: only then is there a session."""
        if self._bound is None:
            files, target = resolve(self._given_path)
            self._bound = files, Layout(target)
        return self._bound

    def _write(self, rows: DataFrame, folder: str) -> int | None:
        """Let Spark write the staged files; the number of rows, unless the files' footers will tell it for less."""
        from pyspark.errors import AnalysisException, IllegalArgumentException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        try:
            extra = bucketing.columns(rows, self._buckets)
            frame = rows.withColumns(extra) if extra else rows
            if self._drop and self._buckets:
                frame = frame.drop(*(b for b in self._buckets if isinstance(b, str)))
            by_footers = self._format == "parquet" and footers.tell_all(rows.sparkSession, folder)
            counter = None if by_footers else Observation()
            if counter is not None:
                frame = frame.observe(counter, f.count(f.lit(1)).alias("rows"))
            writer = frame.write.format(self._format).mode("overwrite").options(**self._options)
            if self._compression:
                writer = writer.option("compression", self._compression)
            if self._max_rows:
                writer = writer.option("maxRecordsPerFile", self._max_rows)
            if extra:
                writer = writer.partitionBy(*extra)
            writer.save(_writer_path(folder))
        except AnalysisException as fault:
            raise BadRows(
                f"sink {self._name!r}: Spark cannot write this frame as {self._format}: {fault.getMessage()}. "
                "Nothing of the epoch was written"
            ) from fault
        except IllegalArgumentException as fault:
            raise OptionError(repr(self), [f"Spark's writer says: {fault.getMessage()}"]) from fault
        return None if counter is None else int(counter.get.get("rows", 0))

    def _count(
        self, spark: SparkSession, home: str, moves: list[tuple[str, str, int]], counted: int | None
    ) -> int | None:
        """How many rows were staged; None if some that were written are missing."""
        if self._format != "parquet" or not is_local(home):
            return None if counted and not moves else counted
        found = footers.count_rows(spark, [join(home, staged) for staged, _, _ in moves]) if moves else 0
        if counted is None:  # without buckets even an empty frame makes a file
            return found if moves or self._buckets else None
        return found if found == counted else None

    def _moves(self, attempt: Attempt, staged: Iterable[Entry]) -> list[tuple[str, str, int]]:
        """(staged name, published name, length) of each file that Spark's writer committed."""
        moves: list[tuple[str, str, int]] = []
        for entry in staged:
            *folders, file = entry.name.split("/")
            if file.startswith(("_", ".")) or "_temporary" in folders:
                continue
            target = [
                self._bucket_folder(bucket, folder) for bucket, folder in zip(self._buckets, folders, strict=True)
            ]
            target.append(part_name(attempt, len(moves), file))
            moves.append((f"{DATA}/{entry.name}", "/".join(target), entry.length))
        return moves

    def _bucket_folder(self, bucket: str | TimeBucket, staged: str) -> str:
        value = decode(staged.partition("=")[2])
        key = folder_of(bucket)
        if self._drop and isinstance(bucket, str) and not bucketing.survives(value, key):
            raise BadRows(
                f"sink {self._name!r}: a row's {bucket!r} is {'empty' if not value.text else 'too long'} for a "
                "folder's name, and the files do not hold the column. Nothing of the epoch was written. Set "
                "drop_bucket_columns=False, or clean the column before"
            )
        return bucketing.folder_name(key, value)

    def _marker_names(self, attempt: Attempt, moves: list[tuple[str, str, int]]) -> list[str]:
        if self._marker == "epoch":
            return [marker_name(attempt)]
        if self._marker == "bucket":
            return [f"{folder}_SUCCESS" for folder in sorted({t[: t.rfind("/") + 1] for _, t, _ in moves})]
        return []

    def _checked_body(self, handle: Handle, layout: Layout) -> dict[str, Json]:
        body = handle.known(HANDLE_VERSION)
        if body.get("target") != layout.target:
            raise Refused(
                f"sink {self._name!r}: a decided epoch was staged in {body.get('target')}, this sink writes to "
                f"{layout.target}. Run `epochal recover CHECKPOINT` before the path is changed"
            )
        return body

    def _check_same(self, attempt: Attempt, found: PublishedEpoch) -> None:
        if found.generation != attempt.generation:
            raise DataLost(
                f"sink {self._name!r}: epoch {attempt.epoch} is in the manifest from generation {found.generation}, "
                f"but generation {attempt.generation} was decided: two journals write to one lineage"
            )

    def _publish(self, home: str, move: tuple[str, str, int], step: str, folders: set[str]) -> None:
        files, layout = self._place()
        staged, name, length = move
        source, target = join(home, staged), join(layout.target, name)
        folder = target.rpartition("/")[0]
        if folder not in folders:
            files.make_folder(folder)
            folders.add(folder)
        failpoints.hit(f"before-{step}")
        try:
            files.rename(source, target)
        except (FileNotFoundError, FileExistsError):
            self._check_published(source, target, length, marker=step == "marker")
        failpoints.hit(f"after-{step}")

    def _check_published(self, source: str, target: str, length: int, *, marker: bool) -> None:
        """An earlier try may have done it; anything else at that name is a fault that stops the query."""
        files, _ = self._place()
        found = files.length(target)
        if found == length and (marker or files.length(source) is None):
            return
        if found is None:
            raise DataLost(
                f"sink {self._name!r}: {target} should have {length} bytes, and is neither published nor staged: the "
                "staged file was removed by another program. Its epoch is decided and its rows are gone from here"
            )
        raise DataLost(
            f"sink {self._name!r}: {target} should have {length} bytes, but another file with {found} bytes has its "
            f"name{'' if files.length(source) is None else '; the staged file is still there'}. Move it away"
        )


def from_description(description: Mapping[str, Json]) -> RollingFileSink:
    """A sink that can commit and abort what a journal describes. Its target is a full path already."""
    return RollingFileSink(
        _writer_path(str(description["target"])), format=str(description["format"]), name=str(description["name"])
    )


def _moves_of(body: Mapping[str, Json], key: str) -> list[tuple[str, str, int]]:
    raw = body[key]
    assert isinstance(raw, list)
    rows = [raw] if raw and not isinstance(raw[0], list) else raw
    found = []
    for row in rows:
        assert isinstance(row, list)
        staged, target, length = row
        assert isinstance(length, int)
        found.append((str(staged), str(target), length))
    return found


def _writer_path(path: str) -> str:
    """A plain local path gets its scheme, or Spark would look for it on fs.defaultFS. Hadoop unescapes nothing."""
    return f"file:{path}" if path.startswith("/") else path


def _checked_buckets(given: object, faults: Faults) -> tuple[str | TimeBucket, ...]:
    if isinstance(given, str | TimeBucket) or not isinstance(given, Sequence):
        faults.add(f"bucket_by={given!r}: a list of column names and TimeBuckets")
        return ()
    for bucket in given:
        good = isinstance(bucket, TimeBucket) or (isinstance(bucket, str) and bucket != "")
        faults.check(good, f"bucket_by: {bucket!r} is neither a column name nor a TimeBucket")
    keys = [folder_of(b) for b in given if isinstance(b, str | TimeBucket)]
    faults.check(len(set(keys)) == len(keys), f"bucket_by: {keys} names a folder twice; give a TimeBucket a name=")
    for key in keys:
        faults.check(len(bucketing.escape(key).encode()) <= 100, f"bucket_by: {key!r} is too long for a folder's name")
    return tuple(given)


def _checked_options(given: object, faults: Faults) -> dict[str, str]:
    """The writer's options. Values stay out of the messages: they may be keys or passwords."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        faults.add(f"options: a dictionary of the writer's options, not {type(given).__name__}")
        return {}
    for key, value in given.items():
        if key.lower() in RESERVED_OPTIONS:
            faults.add(f"options[{key!r}]: {RESERVED_OPTIONS[key.lower()]}")
        elif not isinstance(value, str):
            faults.add(f"options[{key!r}]: Spark's writer options are texts, not {type(value).__name__}")
    return dict(given)
