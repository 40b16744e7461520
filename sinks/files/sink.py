"""Rolling files: an epoch's files are staged by Spark's own writer and published by rename.

Stage writes below ``_epochal/``, which readers pass over, and records each file's length; commit renames
(`publishing`). With a rolling policy what an epoch writes are pieces of parts that stay open; which of them close is
decided while the epoch is staged (`rolling`) and recorded with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from epochal.sinks import digests, enrolment, footers
from epochal.sinks.files import avro, completion, digesting, joining, kept, manifest, rolling
from epochal.sinks.files import buckets as bucketing
from epochal.sinks.files.auditing import Auditor
from epochal.sinks.files.buckets import AnyBucket, Bucket, TimeBucket, folder_of
from epochal.sinks.files.closing import Closer
from epochal.sinks.files.completion import Complete, Marks
from epochal.sinks.files.joining import spark_path
from epochal.sinks.files.kept import Kept
from epochal.sinks.files.layout import DATA, MANIFEST, MARKER, Layout, marker_name, part_name
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.publishing import NO_MANIFEST, Move, Publisher, Work
from epochal.sinks.files.rolling import Piece, Plan, Rolling
from epochal.sinks.hadoop import resolve, session_for
from epochal.sinks.options import Faults
from epochal.sinks.values import decode
from epochal.txn import failpoints
from epochal.txn.audit import Found, Scope
from epochal.txn.errors import BadRows, OptionError, Refused
from epochal.txn.files import Entry, JoiningFiles, is_local, join
from epochal.txn.model import Attempt, Handle, Json, Memory, OpenPart, Outcome, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("epochal")

HANDLE_VERSION = 2
FORMATS = ("parquet", "orc", "avro", "json", "csv", "text", "xml")
MARKERS = ("none", "epoch", "bucket")
RESERVED_OPTIONS = {"path": "give it as the first argument", "maxrecordsperfile": "use max_rows_per_file"}


@dataclass(frozen=True, slots=True)
class Told:
    """What is kept of an epoch for an audit."""

    digest: str | None = None
    header: str | None = None


NOTHING_TOLD = Told()


class RollingFileSink:
    """Files of any format that Spark writes, in buckets, each epoch all or nothing.

    >>> RollingFileSink("archive/orders", format="json", bucket_by=["day"], compression="gzip")
    RollingFileSink('archive/orders', format='json', name='files')

    `bucket_by` takes column names, `TimeBucket`s and `Bucket`s, which are functions. The rows in the files keep
    the bucket columns, unless `drop_bucket_columns` is set (Hive's way; always so for text, which has one column).
    `marker` makes an empty ``_SUCCESS`` file for each epoch or in each bucket; a `Complete` makes one when a bucket's
    time is over. `options` go to Spark's writer as they are. With `rolling` a bucket's part stays open over epochs
    and appears when a limit is reached. With `digest` each epoch's rows are digested while they are written, so that
    ``epochal audit`` can prove not only how many there are but which.
    """

    def __init__(
        self,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002  # what Spark's users know it as
        bucket_by: Sequence[AnyBucket] = (),
        name: str = "files",
        drop_bucket_columns: bool | None = None,
        max_rows_per_file: int | None = None,
        rolling: Rolling | None = None,
        compression: str | None = None,
        marker: str | Complete = "none",
        digest: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        faults = Faults(f"RollingFileSink({path!r})")
        faults.check(isinstance(path, str) and path.strip() != "", "path: a folder or URI, not empty")
        faults.one_of("format", format, FORMATS)
        faults.sink_name(name)
        self._buckets = _checked_buckets(bucket_by, faults)
        _check_marker(marker, self._buckets, faults)
        if max_rows_per_file is not None:
            faults.above_zero("max_rows_per_file", max_rows_per_file)
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
        codec = compression or _option(self._options, "compression")
        if format == "avro":
            _check_avro(codec, self._options, faults, rolls=rolling is not None)
        if faults.check(isinstance(digest, bool), f"digest={digest!r}: True or False") and digest:
            for fault in digesting.faults(format, self._options):
                faults.add(fault)
        _check_rolling(rolling, format, codec, marker, faults)
        faults.done()
        self._given_path = path
        self._format = format
        self._name = name
        self._drop = drop_bucket_columns if drop_bucket_columns is not None else format == "text"
        self._max_rows = max_rows_per_file
        self._compression = compression
        self._marker = marker
        self._digest = digest
        self._audit_headers: dict[str, str] = {}  # by schema
        self._rolling = rolling
        self._spreads = rolling is not None  # a file may hold rows of several epochs
        self._bound: tuple[JoiningFiles, Layout] | None = None
        self._recalled: Mapping[str, Json] = {}
        self._kept = Kept()
        self._clock_before: float | None = None
        self._watermark: float | None = None
        self._epochs_without = 0
        self._headers: dict[str, bytes] = {}
        self._schemas: dict[str, StructType] = {}
        self._checked_open = False

    def __repr__(self) -> str:
        return f"RollingFileSink({self._given_path!r}, format={self._format!r}, name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    def describe(self) -> dict[str, Json]:
        told: dict[str, Json] = {
            "type": "files",
            "name": self._name,
            "target": self._place()[1].target,
            "format": self._format,
        }
        if self._rolling is not None or isinstance(self._marker, Complete):
            told |= {"keeps_open": True, "compression": self._compression}
        if self._has_header():
            told["header"] = True
        return told

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
        if adopts is not None and files.names(layout.open(adopts)):
            raise Refused(
                f"sink {self._name!r}: the stream whose place this one takes has parts open in {layout.open(adopts)}, "
                "whose rows would never appear. Publish them first: `epochal roll` with that stream's checkpoint"
            )
        enrolment.enrol(files, layout.lineages, lineage, adopts)

    def stage(self, attempt: Attempt, rows: DataFrame, *, offsets: str) -> Staged:
        files, layout = self._place()
        home = layout.attempt(attempt)
        self._check_open(attempt.lineage)
        failpoints.hit("before-write")
        counted, shape, told = self._write(rows, join(home, DATA))
        failpoints.hit("after-write")
        written = self._written(files.walk(join(home, DATA)))
        count = self._count(rows.sparkSession, home, written, counted)
        if count is None:
            raise Refused(
                f"sink {self._name!r}: the rows of epoch {attempt.epoch} that Spark wrote to {home} are not there, or "
                "not all of them. Do the driver and the executors see the same file system? Nothing of the epoch was "
                "published"
            )
        if count == 0:
            written = []  # Spark writes a file for an empty frame too
        files.sync_all([join(home, DATA, entry.name) for _, entry in written])
        clock = self._clock_before if self._clock_before is not None else time.time()
        marks = self._marks({bucket for bucket, _ in written}, clock)
        if self._rolling is None and not self._kept.pieces:
            moves: list[Move] = []
            for bucket, entry in written:
                target = f"{bucket}{part_name(attempt, len(moves), entry.name)}"
                moves.append((f"{DATA}/{entry.name}", target, entry.length))
            work = Work(NO_MANIFEST, files=tuple(moves))
            return self._staged(
                attempt, work, Kept(layout.target), marks, clock, rows=count, offsets=offsets, told=told
            )
        fresh = self._pieces(rows.sparkSession, attempt, home, written, clock, shape)
        if self._rolling is None:  # as ever, a file for each that was written; and what is still open is closed
            plan = rolling.plan(self._kept.pieces, None, clock)
            plan = Plan((*plan.closed, *((piece,) for piece in fresh)), plan.open)
        else:
            pieces = [*self._kept.pieces, *fresh]
            plan = rolling.plan(pieces, self._rolling, clock, shape=shape, complete=marks.complete)
        new = frozenset(fresh)
        return self._roll(attempt, plan, marks, clock, rows.sparkSession, new, rows=count, offsets=offsets, told=told)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        files, layout = self._place()
        body = self._checked_body(handle, layout)
        return Publisher(self._name, files, layout, attempt).publish(Work.from_json(body))

    def recall(self, kept_before: Mapping[str, Json], earlier: Sequence[Handle]) -> None:
        if kept_before is not self._recalled:
            self._recalled, self._kept = kept_before, kept.decode(kept_before)
        clocks = [handle.body.get("clock") for handle in earlier]
        # A replay goes by the time at which the epoch was first staged, so that it closes the same parts.
        self._clock_before = min((clock for clock in clocks if isinstance(clock, float)), default=None)
        if self._kept.target not in (None, self._place()[1].target):
            raise Refused(
                f"sink {self._name!r}: parts are open in {self._kept.target}, this sink writes to "
                f"{self._place()[1].target}. Nothing was written. Publish them first: `epochal roll CHECKPOINT`"
            )

    def follow(self, watermark: float | None) -> None:
        self._watermark = watermark
        self._epochs_without = 0 if watermark is not None else self._epochs_without + 1
        if self._awaits("watermark") and self._epochs_without == 2:  # before its first rows no query has one
            log.warning("sink %r marks buckets by the watermark, and the query has none: use withWatermark", self._name)

    def due(self) -> float | None:
        found = rolling.NEVER
        if self._rolling is not None:
            found = rolling.due(rolling.open_parts(self._kept.pieces), self._rolling)
        if isinstance(self._marker, Complete):
            found = min(found, self._marker.due(self._kept.awaited) or rolling.NEVER)
        return None if found == rolling.NEVER else found

    def roll(self, attempt: Attempt, *, every: bool) -> Staged | None:
        clock = time.time()
        marks = self._marks((), clock) if self._awaits("clock") else Marks(self._kept.awaited)
        policy = None if every else self._rolling
        plan = rolling.plan(self._kept.pieces, policy, clock, complete=marks.complete)
        if not plan.closed and not marks.complete:
            return None
        session = session_for(self._place()[1].target) if self._needs_spark() else None
        return self._roll(attempt, plan, marks, clock, session, frozenset())

    def open_parts(self, kept_now: Mapping[str, Json]) -> list[OpenPart]:
        parts = rolling.open_parts(kept.decode(kept_now).pieces)
        return [
            OpenPart(
                bucket=part[0].bucket.rstrip("/"),
                bytes=sum(piece.bytes for piece in part),
                rows=rolling.rows_of(part),
                pieces=len(part),
                first=min(piece.at for piece in part),
                last=max(piece.at for piece in part),
            )
            for part in parts
        ]

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        files, layout = self._place()
        files.delete(layout.attempt(attempt))

    def audit(self, scope: Scope) -> Found:
        files, layout = self._place()
        return Auditor(files, layout, spreads=self._spreads, has_header=self._has_header()).audit(scope)

    def leftovers(self, lineage: str) -> list[Attempt]:
        files, layout = self._place()
        enrolment.sweep(files, layout.lineages)
        found = (Attempt.from_key(lineage, name) for name in files.names(layout.staged(lineage)))
        return [attempt for attempt in found if attempt is not None]

    def _roll(
        self,
        attempt: Attempt,
        plan: Plan,
        marks: Marks,
        clock: float,
        spark: SparkSession | None,
        fresh: frozenset[Piece],
        *,
        rows: int = 0,
        offsets: str = "",
        told: Told = NOTHING_TOLD,
    ) -> Staged:
        """Close what the plan says, and say what stays open."""
        files, layout = self._place()
        after = Kept(layout.target, plan.open, {**(self._kept.headers or {}), **self._headers})
        closer = Closer(self._name, files, layout, attempt, self._writer, after.headers or {}, self._schemas)
        closed = closer.close(plan, fresh, spark)
        work = Work(
            NO_MANIFEST,
            files=closed.moves,
            joins=closed.joins,
            keeps=any(piece in fresh for piece in plan.open),
            spent=closed.spent,
        )
        return self._staged(attempt, work, after, marks, clock, rows=rows, offsets=offsets, told=told)

    def _staged(
        self,
        attempt: Attempt,
        work: Work,
        after: Kept,
        marks: Marks,
        clock: float,
        *,
        rows: int,
        offsets: str,
        told: Told,
    ) -> Staged:
        body = self._handle(attempt, work, marks, rows, offsets, told)
        body["clock"] = clock
        now = kept.encode(replace(after, awaited=marks.awaited))
        changes = kept.changes(self._recalled, now)
        return Staged(Handle(HANDLE_VERSION, body), rows, changes=changes, digest=told.digest)

    def _awaits(self, what: str) -> bool:
        return isinstance(self._marker, Complete) and self._marker.by == what

    def _marks(self, touched: Iterable[str], clock: float) -> Marks:
        """What has become of the buckets that await their marker, those of this epoch's rows included."""
        if not isinstance(self._marker, Complete):
            return Marks()
        ends = {bucket: completion.ends_at(bucket, self._buckets) for bucket in touched}
        awaited = {**self._kept.awaited, **{bucket: end for bucket, end in ends.items() if end is not None}}
        return self._marker.divide(awaited, watermark=self._watermark, clock=clock)

    def _check_open(self, lineage: str) -> None:
        """Once a start: pieces that the journal knows nothing of are rows that would never appear."""
        files, layout = self._place()
        if not self._checked_open and not self._kept.pieces and files.names(layout.open(lineage)):
            raise Refused(
                f"sink {self._name!r}: {layout.open(lineage)} holds rows of parts that the journal does not know: it "
                "was lost or replaced. Nothing was written. Restore the journal from a copy; or publish those files "
                "yourself, then remove that folder"
            )
        self._checked_open = True

    def _needs_spark(self) -> bool:
        return any(joining.format_of(piece.shape) not in joining.BY_BYTES for piece in self._kept.pieces)

    def _pieces(
        self,
        spark: SparkSession,
        attempt: Attempt,
        home: str,
        written: list[tuple[str, Entry]],
        clock: float,
        shape: str,
    ) -> list[Piece]:
        paths = [join(home, DATA, entry.name) for _, entry in written]
        counts: Sequence[int | None] = [None] * len(written)
        if self._format == "parquet" and is_local(home):
            counts = footers.rows_of(spark, paths)
        elif self._rolling is not None and self._rolling.max_rows is not None:
            counts = joining.rows_of(spark, self._format, paths)
        return [
            Piece(attempt.epoch, bucket, entry.name, entry.length, rows, clock, shape)
            for (bucket, entry), rows in zip(written, counts, strict=True)
            if entry.length
        ]

    def _handle(
        self, attempt: Attempt, work: Work, marks: Marks, rows: int, offsets: str, told: Told
    ) -> dict[str, Json]:
        """Stage the manifest and the markers beside the files."""
        files, layout = self._place()
        home = layout.attempt(attempt)
        shown = [(target, length) for _, target, length in work.files]
        shown += [(one.target, one.length) for one in work.joins]
        entry = PublishedEpoch(
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            offsets=offsets,
            rows=rows,
            files=tuple(shown),
            roll=attempt.roll,
            digest=told.digest,
            header=told.header,
        ).encode()
        files.create(join(home, MANIFEST), entry, durable=False)  # PREPARED, which follows, is
        markers: list[Move] = []
        for number, (target, text) in enumerate(self._markers(attempt, marks, [target for target, _ in shown])):
            files.create(join(home, f"{MARKER}-{number}"), text, durable=False)
            markers.append((f"{MARKER}-{number}", target, len(text)))
        whole = replace(work, manifest=(MANIFEST, layout.manifest_name(attempt), len(entry)), markers=tuple(markers))
        return {"target": layout.target, **whole.to_json()}

    def _place(self) -> tuple[JoiningFiles, Layout]:
        """The file system and the full path, found when first needed: only then is there a session."""
        if self._bound is None:
            files, target = resolve(self._given_path)
            self._bound = files, Layout(target)
        return self._bound

    def _write(self, rows: DataFrame, folder: str) -> tuple[int | None, str, Told]:
        """Let Spark write the staged files; the number of rows, unless the files' footers will tell it for less, the
        shape of what was written, and what an audit will ask.
        """
        from pyspark.errors import AnalysisException, IllegalArgumentException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        try:
            extra = bucketing.columns(rows, self._buckets)
            frame = rows.withColumns(extra) if extra else rows
            if self._drop and self._buckets:
                frame = frame.drop(*(b for b in self._buckets if isinstance(b, str)))
            by_footers = self._format == "parquet" and footers.tell_all(rows.sparkSession, folder)
            counter = None if by_footers and not self._digest else Observation()
            if counter is not None:
                sums = [f.count(f.lit(1)).alias(digests.ROWS)]
                if self._digest:
                    sums = digesting.measure(frame.drop(*extra), self._format, self._options).sums()
                frame = frame.observe(counter, *sums)
            writer = self._writer(frame, self._format)
            if extra:
                writer = writer.partitionBy(*extra)
            if (most := self._most_rows()) is not None:
                writer = writer.option("maxRecordsPerFile", most)
            writer.save(spark_path(folder))
            shape = self._shape(frame.drop(*extra), folder)
            header = self._header(frame.drop(*extra), folder) if self._digest else None
        except AnalysisException as fault:
            raise self._bad_rows(fault.getMessage()) from fault
        except IllegalArgumentException as fault:
            raise OptionError(repr(self), [f"Spark's writer says: {fault.getMessage()}"]) from fault
        except Py4JError as fault:
            kind, told = avro.complaint(fault) or ("", "")
            if kind == avro.BAD_OPTION:
                raise OptionError(repr(self), [f"Spark's writer says: {told}"]) from fault
            if told:
                raise self._bad_rows(told) from fault
            raise
        if counter is None:
            return None, shape, NOTHING_TOLD
        counted = digests.tally(counter.get)
        return counted.rows, shape, Told(counted.digest, header) if self._digest else NOTHING_TOLD

    def _bad_rows(self, told: str) -> BadRows:
        return BadRows(
            f"sink {self._name!r}: Spark cannot write this frame as {self._format}: {told}. Nothing of the epoch was "
            "written"
        )

    def _writer(self, frame: DataFrame, format_: str) -> DataFrameWriter:
        writer = frame.write.format(joining.source_of(format_)).mode("overwrite").options(**self._options)
        if self._compression:
            writer = writer.option("compression", self._compression)
        if self._rolling is not None and format_ == "csv":
            writer = writer.option("header", "false")  # once in a part, not in each piece
        return writer

    def _most_rows(self) -> int | None:
        limits = [self._max_rows, self._rolling.max_rows if self._rolling is not None else None]
        return min((limit for limit in limits if limit is not None), default=None)

    def _shape(self, frame: DataFrame, folder: str) -> str:
        """What the files look like inside; and, for CSV, what a part begins with."""
        if self._rolling is None:
            return ""
        options = {**self._options, "compression": self._compression or ""}
        shape = joining.shape_of(frame, self._format, options)
        self._schemas[shape] = frame.schema
        if self._has_header() and shape not in self._headers:
            files, _ = self._place()
            beside = f"{folder}-header"
            self._headers[shape] = joining.header_of(frame, lambda f: self._writer(f, "csv"), files, beside)
        return shape

    def _has_header(self) -> bool:
        return self._format == "csv" and str(_option(self._options, "header")).lower() == "true"

    def _header(self, frame: DataFrame, folder: str) -> str | None:
        """The line that CSV files begin with, as far as an audit has to take it out."""
        if not self._has_header():
            return None
        known = frame.schema.json()
        if known not in self._audit_headers:
            files, _ = self._place()
            plain = joining.header_of(
                frame, lambda f: self._writer(f, "csv").option("compression", "none"), files, f"{folder}-header"
            )
            self._audit_headers[known] = plain.decode().removesuffix("\n")
        return self._audit_headers[known]

    def _count(
        self, spark: SparkSession, home: str, written: list[tuple[str, Entry]], counted: int | None
    ) -> int | None:
        """How many rows were staged; None if some that were written are missing."""
        if self._format != "parquet" or not is_local(home):
            return None if counted and not written else counted
        found = footers.count_rows(spark, [join(home, DATA, entry.name) for _, entry in written]) if written else 0
        if counted is None:  # without buckets even an empty frame makes a file
            return found if written or self._buckets else None
        return found if found == counted else None

    def _written(self, staged: Iterable[Entry]) -> list[tuple[str, Entry]]:
        """Each file that Spark's writer committed, with the folder of its bucket below the target."""
        found: list[tuple[str, Entry]] = []
        for entry in staged:
            *folders, file = entry.name.split("/")
            if file.startswith(("_", ".")) or "_temporary" in folders:
                continue
            named = [self._bucket_folder(bucket, folder) for bucket, folder in zip(self._buckets, folders, strict=True)]
            found.append(("".join(f"{folder}/" for folder in named), entry))
        return found

    def _bucket_folder(self, bucket: AnyBucket, staged: str) -> str:
        value = decode(staged.partition("=")[2])
        key = folder_of(bucket)
        if self._drop and isinstance(bucket, str) and not bucketing.survives(value, key):
            raise BadRows(
                f"sink {self._name!r}: a row's {bucket!r} is {'empty' if not value.text else 'too long'} for a "
                "folder's name, and the files do not hold the column. Nothing of the epoch was written. Set "
                "drop_bucket_columns=False, or clean the column before"
            )
        return bucketing.folder_name(key, value)

    def _markers(self, attempt: Attempt, marks: Marks, targets: list[str]) -> list[tuple[str, bytes]]:
        """The names and contents of what is published with the files."""
        if self._marker == "epoch":
            return [(marker_name(attempt), b"")]
        if self._marker == "bucket":
            folders = sorted({target[: target.rfind("/") + 1] for target in targets})
            return [(f"{folder}{completion.SUCCESS}", b"") for folder in folders]
        files, layout = self._place()
        # All earlier epochs are published when one is staged, so what lies there tells the version.
        versions = [completion.next_version(files.names(join(layout.target, bucket))) for bucket in marks.complete]
        return [completion.marker(*found, attempt) for found in zip(marks.complete, versions, strict=True)]

    def _checked_body(self, handle: Handle, layout: Layout) -> dict[str, Json]:
        body = handle.known(HANDLE_VERSION)
        if body.get("target") != layout.target:
            raise Refused(
                f"sink {self._name!r}: a decided epoch was staged in {body.get('target')}, this sink writes to "
                f"{layout.target}. Run `epochal recover CHECKPOINT` before the path is changed"
            )
        return body


def from_description(description: Mapping[str, Json]) -> RollingFileSink:
    """A sink that can commit and abort what a journal describes. Its target is a full path already."""
    sink = RollingFileSink(
        spark_path(str(description["target"])),
        format=str(description["format"]),
        name=str(description["name"]),
        compression=str(description["compression"]) if description.get("compression") else None,
        options={"header": "true"} if description.get("header") else None,
    )
    sink._spreads = bool(description.get("keeps_open"))
    return sink


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name), None)


def _check_rolling(given: object, format_: object, codec: object, marker: object, faults: Faults) -> None:
    if given is None:
        return
    if not faults.check(
        isinstance(given, Rolling), f"rolling={given!r}: a Rolling, such as Rolling(max_bytes='64 MB')"
    ):
        return
    joined = (*joining.BY_BYTES, *joining.BY_BLOCKS, *joining.MERGED)
    faults.check(
        format_ in joined, f"format={format_!r}: parts of it cannot be joined; rolling takes {', '.join(joined)}"
    )
    faults.check(
        format_ not in joining.BY_BYTES or codec in joining.BY_BYTES_CODECS,
        f"compression={codec!r}: files of it cannot be joined; with rolling, {format_} takes gzip or bzip2",
    )
    faults.check(marker != "bucket", "marker='bucket': with rolling, give a Complete, which says when a bucket is")


def _check_marker(given: object, buckets: Sequence[AnyBucket], faults: Faults) -> None:
    if not isinstance(given, Complete):
        faults.one_of("marker", given, MARKERS)
        return
    timed = any(isinstance(bucket, TimeBucket) for bucket in buckets)
    faults.check(timed, f"marker={given!r}: only a TimeBucket in bucket_by tells when a bucket is complete")


def _check_avro(codec: object, options: Mapping[str, str], faults: Faults, *, rolls: bool) -> None:
    if codec is not None:
        faults.one_of("compression", codec, avro.CODECS)
    faults.check(
        not (rolls and _option(options, "avroschemaurl")),
        "options['avroSchemaUrl']: with rolling give the schema itself as avroSchema: what is behind an address may "
        "change, and pieces of one part must be alike",
    )


def _checked_buckets(given: object, faults: Faults) -> tuple[AnyBucket, ...]:
    if isinstance(given, str | TimeBucket | Bucket) or not isinstance(given, Sequence):
        faults.add(f"bucket_by={given!r}: a list of column names, TimeBuckets and Buckets")
        return ()
    for bucket in given:
        good = isinstance(bucket, TimeBucket | Bucket) or (isinstance(bucket, str) and bucket != "")
        faults.check(good, f"bucket_by: {bucket!r} is neither a column name nor a TimeBucket nor a Bucket")
    keys = [folder_of(b) for b in given if isinstance(b, str | TimeBucket | Bucket)]
    faults.check(
        len(set(keys)) == len(keys), f"bucket_by: {keys} names a folder twice; give a TimeBucket another name="
    )
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
