"""Stages closed parts: the pieces of each become one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from epochal.sinks.files.formats import avro, joining
from epochal.sinks.files.formats.columnar import Columnar
from epochal.sinks.files.handle import Concat, Rename
from epochal.sinks.files.layout import DATA, HEADER, JOINED, OPEN, Layout, part_name
from epochal.sinks.files.opened import Opened
from epochal.sinks.files.policies import rolling
from epochal.sinks.files.policies.rolling import Piece, RollPlan
from epochal.sinks.spark import footers
from epochal.sinks.storage.connect import is_connect
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import is_local
from epochal.txn.model import Attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType


LISTED_FROM = 2  # a folder is listed if at least one of so many files in it is wanted; else these are looked up
# The driver makes copies, one after the other. Beyond this many bytes in an epoch, a Spark job merges the pieces.
COPIED_AT_MOST = 1 << 30


@dataclass(frozen=True, slots=True)
class Closed:
    """What the commit renames, what it joins first, and which pieces it removes afterwards."""

    renames: tuple[Rename, ...]
    joins: tuple[Concat, ...]
    obsolete: tuple[str, ...]

    @property
    def staged(self) -> Iterator[str]:
        """The files of this attempt among them; others were synced by their epoch."""
        names = chain((name for name, _, _ in self.renames), (name for one in self.joins for name, _ in one.sources))
        return (name for name in names if not name.startswith(f"{OPEN}/"))


@dataclass
class Closer:
    """Closes parts in the staging area of one attempt; pieces of earlier epochs are only read. It syncs nothing."""

    sink: str
    files: SinkFiles
    layout: Layout
    attempt: Attempt
    writer: Callable[[DataFrame, str], DataFrameWriter]
    headers: Mapping[str, bytes]
    schemas: Mapping[str, StructType]  # by shape, where they are known
    opened: Opened
    merge_below: int = rolling.MERGE_BELOW
    _renames: list[Rename] = field(default_factory=list)
    _joins: list[Concat] = field(default_factory=list)
    _copies: list[tuple[str, str, list[tuple[str, int]], str]] = field(default_factory=list)
    _to_merge: dict[str, list[tuple[str, tuple[Piece, ...]]]] = field(default_factory=dict)  # by shape
    _names: dict[Piece, str] = field(default_factory=dict)
    _joiner: avro.Joiner | None = None
    _columnar: Columnar | None = None
    _copied: int = 0

    def close(self, plan: RollPlan, fresh: frozenset[Piece], spark: SparkSession | None) -> Closed:
        """Make one file of each closed part: by a rename if it has one piece, else by joining, copying or merging."""
        for piece in (piece for part in plan.closed for piece in part):
            self._names[piece] = f"{DATA}/{piece.name}" if piece in fresh else f"{_folder(piece)}/{piece.name}"
        self._check_lengths(fresh)
        by_bytes = any(joining.format_of(part[0].shape) in joining.BY_BYTES for part in plan.closed)
        in_place = by_bytes and self.files.joins_in_place(self.layout.target)
        headers = [(number, self.headers.get(part[0].shape)) for number, part in enumerate(plan.closed)]
        self.files.create_all([(self._path(f"{HEADER}-{number}"), header) for number, header in headers if header])
        for number, part in enumerate(plan.closed):
            self._close(number, part, spark, in_place=in_place)
        self._copy_all(spark)
        for number, (shape, parts) in enumerate(self._to_merge.items()):
            assert spark is not None  # the caller has one if something is merged
            self._merge(spark, f"merged-{number}", shape, parts)
        taken = {rename[0] for rename in self._renames} | {name for one in self._joins for name, _ in one.sources}
        unused = {piece: name for piece, name in self._names.items() if name not in taken}
        # Pieces whose rows are in a merged or copied file.
        self.files.delete_all([self._path(unused.pop(piece)) for piece in fresh & unused.keys()])
        # Pieces that are joined in place leave their folder, so they need no removal.
        earlier = self._names.keys() - fresh
        emptied = self.opened.epochs_without(earlier)
        folders = {_folder(piece) for piece in earlier if piece.epoch in emptied}
        single = {name for piece, name in unused.items() if _folder(piece) not in folders}
        return Closed(tuple(self._renames), tuple(self._joins), (*sorted(folders), *sorted(single)))

    def _close(self, number: int, part: tuple[Piece, ...], spark: SparkSession | None, *, in_place: bool) -> None:
        target = f"{part[0].bucket}{part_name(self.attempt, number, part[0].name)}"
        sources = [(self._names[piece], piece.bytes) for piece in part]
        header = self.headers.get(part[0].shape)
        if header:
            sources.insert(0, (f"{HEADER}-{number}", len(header)))
        format_ = joining.format_of(part[0].shape)
        if len(sources) == 1:
            self._renames.append((sources[0][0], target, sources[0][1]))
        elif format_ in joining.MERGED:
            copies = self._is_to_be_copied(part) and not is_connect(spark)  # row groups are copied in Spark's JVM
            if not (copies and self._copy_groups(number, target, part, format_, spark)):
                self._to_merge.setdefault(part[0].shape, []).append((target, part))
        elif in_place and format_ in joining.BY_BYTES:
            self._joins.append(Concat(tuple(sources), target))
        else:
            self._copies.append((f"{JOINED}/{number}", target, sources, format_))

    def _is_to_be_copied(self, part: tuple[Piece, ...]) -> bool:
        """Whether a part's pieces are large enough to become row groups of one file."""
        size = sum(piece.bytes for piece in part)
        return size >= self.merge_below * len(part) and self._copied + size <= COPIED_AT_MOST

    def _copy_groups(
        self, number: int, target: str, part: tuple[Piece, ...], format_: str, spark: SparkSession | None
    ) -> bool:
        """Copy the row groups of a part's pieces into one file; False if the pieces must be merged instead."""
        assert spark is not None  # the caller has one if something is merged
        staged = f"{JOINED}/{number}"
        self._columnar = self._columnar or Columnar(spark)
        failpoints.hit("before-copy")
        length = self._columnar.join(format_, self._path(staged), [self._path(self._names[piece]) for piece in part])
        if length is None:
            self.files.delete(self._path(staged))
            return False
        failpoints.hit("after-copy")
        self._copied += length
        self._check_merged(spark, format_, staged, part)
        self._renames.append((staged, target, length))
        return True

    def _copy_all(self, spark: SparkSession | None) -> None:
        """Copy the pieces of each part that cannot be joined otherwise into one file, side by side."""
        by_bytes: list[tuple[str, list[str]]] = []
        for staged, target, sources, format_ in self._copies:
            failpoints.hit("before-copy")
            path, paths = self._path(staged), [self._path(name) for name, _ in sources]
            if format_ in joining.BY_BYTES:
                by_bytes.append((path, paths))
                length = sum(length for _, length in sources)
            else:
                assert spark is not None  # the caller has one if blocks are copied
                self._joiner = self._joiner or avro.Joiner(spark)
                length = self._joiner.join(spark_path(path), [spark_path(piece) for piece in paths])
            self._renames.append((staged, target, length))
        self.files.join_all_copies(by_bytes)
        for _ in self._copies:
            failpoints.hit("after-copy")

    def _merge(self, spark: SparkSession, folder: str, shape: str, parts: list[tuple[str, tuple[Piece, ...]]]) -> None:
        format_ = joining.format_of(shape)
        groups = [[self._path(self._names[piece]) for piece in part] for _, part in parts]
        failpoints.hit("before-merge")
        wrote = joining.merge(
            spark,
            format_,
            groups,
            lambda frame: self.writer(frame, format_),
            self._path(folder),
            self.schemas.get(shape),
        )
        failpoints.hit("after-merge")
        found = joining.merged_files(self.files, self._path(folder))
        expected = rolling.rows_of(piece for _, part in parts for piece in part)
        whole = len(found) == len(parts) and wrote.fits(entry.length for group in found.values() for entry in group)
        if whole and not wrote.measured:
            paths = [self._path(f"{folder}/{entry.name}") for group in found.values() for entry in group]
            whole = sum(joining.row_counts(spark, format_, paths)) == wrote.rows
        if not whole or expected not in (None, wrote.rows):
            raise Refused(
                f"sink {self.sink!r}: the {'' if expected is None else f'{expected} '}rows of {len(parts)} parts that "
                f"Spark merged to {self._path(folder)} are not there, or not all of them. Do the driver and the "
                "executors see the same file system? Nothing of the epoch was published"
            )
        for number, (target, part) in enumerate(parts):
            (entry,) = found[number]
            staged = f"{folder}/{entry.name}"
            self._check_merged(spark, format_, staged, part)
            self._renames.append((staged, target, entry.length))

    def _check_lengths(self, fresh: frozenset[Piece]) -> None:
        """Stop the query before a part is built from a piece that has changed since its epoch."""
        earlier = self._names.keys() - fresh
        lengths: dict[str, int | None] = {}
        single: list[str] = []
        by_folder: dict[str, list[Piece]] = {}
        for piece in earlier:
            by_folder.setdefault(_folder(piece), []).append(piece)
        for folder, pieces in by_folder.items():
            if len(pieces) * LISTED_FROM < self.opened.pieces_of(pieces[0].epoch):
                single += (self._names[piece] for piece in pieces)
            else:  # a part may have thousands of pieces
                lengths |= {f"{folder}/{entry.name}": entry.length for entry in self.files.walk(self._path(folder))}
        lengths |= zip(single, self.files.lengths([self._path(name) for name in single]), strict=True)
        for piece in earlier:
            path = self._path(self._names[piece])
            found = lengths.get(self._names[piece])
            if found != piece.bytes:
                raise Refused(
                    f"sink {self.sink!r}: {path} holds rows of epoch {piece.epoch} that are not published yet, and "
                    f"{'is missing' if found is None else f'has {found} bytes'} instead of {piece.bytes}: another "
                    "program has changed the folder. Put it back from a copy; nothing of this epoch was written"
                )

    def _check_merged(self, spark: SparkSession, format_: str, staged: str, part: tuple[Piece, ...]) -> None:
        expected, path = rolling.rows_of(part), self._path(staged)
        if expected is None or format_ != "parquet" or not is_local(path):
            return
        if (found := footers.count_rows(spark, [path])) != expected:
            raise Refused(
                f"sink {self.sink!r}: {len(part)} pieces of {expected} rows were merged into {path}, which has "
                f"{found}. Nothing of the epoch was published"
            )

    def _path(self, name: str) -> str:
        return self.layout.source(self.attempt, name)


def _folder(piece: Piece) -> str:
    return f"{OPEN}/{piece.epoch:012d}"
