"""Compares a target with its manifests and the journal. Reads only.

First by names and lengths, which needs no Spark: every listed file must be there, every part must be listed, and all
open pieces must be there. Then by rows: one job for each format counts and digests every file. If each file belongs to
one epoch, epochs are compared one by one; with open parts, or after a compaction, only all of them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from epochal.sinks.files.audit.reader import Reader
from epochal.sinks.files.compaction import live, records
from epochal.sinks.files.formats import digesting
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.state import open_parts_of
from epochal.sinks.spark import digests
from epochal.sinks.storage.hadoop import session_for
from epochal.txn.audit import ROWS_NOT_READ, Difference, Scope, StoreReport
from epochal.txn.files import Entry, Files, join
from epochal.txn.model import lineage_tag
from epochal.txn.row_digests import RowDigest, total

_PART = re.compile(r"part-(\d{12})(?:\.\d+\.\d+)?-\d{5}-([^.]+)")
HEADER = "header"


@dataclass(frozen=True, slots=True)
class Listed:
    """A file that should be there: published, or a piece of an open part."""

    name: str  # below the target
    length: int
    epoch: int
    is_piece: bool = False

    @property
    def last(self) -> str:
        return self.name.rpartition("/")[2]


@dataclass
class Auditor:
    """Audits one lineage in one target."""

    files: Files
    layout: Layout
    spreads: bool  # by its description: files may hold rows of several epochs
    has_header: bool
    _differences: list[Difference] = field(default_factory=list)
    _unproven: list[str] = field(default_factory=list)
    _ambiguous: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    def audit(self, scope: Scope) -> StoreReport:
        scope.progress(f"listing {self.layout.target}")
        published = live.published(self.files, self.layout.target)
        through = scope.expected.through
        own = [entry for entry in published if entry.lineage == scope.lineage and entry.epoch <= through]
        listed = [Listed(name, length, entry.epoch) for entry in own for name, length in entry.files]
        pieces = self._pieces(scope)
        there = {entry.name: entry.length for entry in _visible(self.files, self.layout.target)}
        good = [file for file in listed if self._is_whole(file, there.get(file.name))]
        good += [piece for piece in pieces if self._is_whole(piece, self.files.length(self._path(piece)))]
        self._look_for_others(scope, published, there)
        recorded = {entry.epoch: RowDigest(entry.rows, entry.digest) for entry in own if not entry.roll}
        epochs: dict[int, RowDigest] = {}
        whole: RowDigest | None = None
        if scope.fast:
            self._unproven.append(ROWS_NOT_READ)
        else:
            row_digests = self._row_digests(scope, good, recorded, {entry.header for entry in own if entry.header})
            if len(row_digests) == len(listed) + len(pieces):
                whole = total(row_digests.values())
            if not self._is_spread(own, pieces):
                epochs = _by_epoch(recorded, listed, row_digests)
            if any(digesting.format_of(file.name) in ("csv", "text") for file in listed):
                epochs, whole = self._without_guesses(recorded, epochs, whole)
        return StoreReport(
            epochs_present=frozenset(recorded),
            recorded=recorded,
            epochs=epochs,
            total=whole,
            differences=tuple(self._differences),
            unproven=tuple(self._unproven),
            ambiguous=tuple(self._ambiguous),
            notes=tuple(self._notes),
        )

    def _pieces(self, scope: Scope) -> list[Listed]:
        """The open pieces, by the journal. Other files in their folder are noted."""
        home = self.layout.open(scope.lineage)
        known = open_parts_of(scope.state)
        below = home.removeprefix(self.layout.target).strip("/")
        pieces = [
            Listed(f"{below}/{piece.epoch:012d}/{piece.name}", piece.bytes, piece.epoch, is_piece=True)
            for piece in known.pieces
            if known.target in (None, self.layout.target)
        ]
        names = {piece.name for piece in pieces}
        for entry in self.files.walk(home):
            stray, epoch, last = f"{below}/{entry.name}", entry.name.partition("/")[0], entry.name.rpartition("/")[2]
            is_old = epoch.isdecimal() and int(epoch) <= scope.expected.through
            if is_old and stray not in names and entry.length and not last.startswith(("_", ".")):
                self._notes.append(f"{stray} belongs to no open part; no reader sees it")
        return pieces

    def _is_whole(self, file: Listed, length: int | None) -> bool:
        if length == file.length:
            return True
        what = f"a piece of epoch {file.epoch} that is still open" if file.is_piece else f"of epoch {file.epoch}"
        if length is not None:
            self._differences.append(
                Difference(f"has {length} bytes and was published with {file.length}", file.epoch, file.name)
            )
        elif file.is_piece:
            self._differences.append(Difference("is missing, and its rows were never published", file.epoch, file.name))
        else:
            self._unproven.append(
                f"{file.name}, {what}, is missing: a retention job has removed it, or it is lost; the audit cannot tell"
            )
        return False

    def _look_for_others(self, scope: Scope, published: Sequence[PublishedEpoch], there: Mapping[str, int]) -> None:
        """Files that a reader of the folder sees and no manifest lists."""
        listed = {name for entry in published for name, _ in entry.files}
        between = self._between() if there.keys() - listed else set()
        for name, length in there.items():
            if name in listed or not length:
                continue
            if name in between:
                self._notes.append(f"{name}: a compaction is not finished; readers of the folder see its rows twice")
                continue
            found = _PART.match(name.rpartition("/")[2])
            if found is None or found[2] != lineage_tag(scope.lineage):
                self._unproven.append(f"{name} is there and no epoch published it: readers of the folder read it too")
            elif int(found[1]) <= scope.expected.through:
                what = f"is there with {length} bytes, and no epoch published it: a copy, or an orphan"
                self._differences.append(Difference(what, int(found[1]), name))

    def _between(self) -> set[str]:
        """Files that a compaction has replaced and not yet removed, or joined and not yet listed."""
        known = records.read(self.files, self.layout)
        found = {path for done in known.done for joined in done.files for path, _ in joined.replaced}
        if not known.is_finished:
            found |= {joined.path for joined in records.read_plan(self.files, self.layout, known.last).files}
        return found

    def _is_spread(self, own: Sequence[PublishedEpoch], pieces: Sequence[Listed]) -> bool:
        """Whether some file may hold rows of several epochs."""
        return self.spreads or bool(pieces) or any(e.roll or (e.rows and not e.files) for e in own)

    def _row_digests(
        self, scope: Scope, files: Sequence[Listed], recorded: Mapping[int, RowDigest], headers: set[str]
    ) -> dict[str, RowDigest]:
        """The rows of each file that can be read, by its name."""
        session = session_for(self.layout.target) if files else None
        if files and session is None:
            self._unproven.append("rows were not read: that needs a Spark session, and none is running")
            return {}
        found: dict[str, RowDigest] = {}
        for format_, group in _by_format(files).items():
            if format_ not in (*digesting.TYPED, *digesting.LINES, *digesting.COUNTED):
                self._unproven.append(
                    f"{len(group)} files of {format_ or 'an unknown format'}: their rows cannot be counted"
                )
                continue
            size = sum(file.length for file in group)
            scope.progress(f"reading {len(group):,} {format_} files, {size / 1e6:,.1f} MB")
            assert session is not None
            reader = Reader(session, format_, sorted(headers))
            for batch in _unlike(group):
                for file, sums in self._read(reader, batch):
                    found[file.name] = self._row_digest(file, format_, sums, reader, recorded)
        return found

    def _read(self, reader: Reader, files: Sequence[Listed]) -> Iterator[tuple[Listed, dict[str, Any]]]:
        """The sums of each file. Files that cannot be read, or not together, are found by halving."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            sums = reader.sums([self._path(file) for file in files])
        except (PySparkException, Py4JError) as fault:
            if len(files) > 1:
                for half in (files[: len(files) // 2], files[len(files) // 2 :]):
                    yield from self._read(reader, half)
                return
            reason = str(fault).strip().partition("\n")[0][:200]
            self._differences.append(Difference(f"cannot be read: {reason}", files[0].epoch, files[0].name))
            return
        for file in files:
            yield file, sums.get(file.last, {})

    def _row_digest(
        self, file: Listed, format_: str, sums: dict[str, Any], reader: Reader, recorded: Mapping[int, RowDigest]
    ) -> RowDigest:
        if format_ in digesting.COUNTED:
            return RowDigest(int(sums.get(digests.ROWS) or 0))
        if format_ in digesting.TYPED:
            return digests.row_digest(sums)
        body = sums if file.is_piece else reader.without_headers(sums)
        digest = digests.row_digest({digests.LINES: 0, **body})
        wanted = recorded.get(file.epoch)
        if wanted is None or wanted.digest is not None:
            return digest
        # Without a digest only lines can be counted, and a row of CSV or text may have several.
        header = 1 if self.has_header and format_ == "csv" and not file.is_piece and digest.rows else 0
        return RowDigest(digest.rows - header)

    def _without_guesses(
        self, recorded: Mapping[int, RowDigest], epochs: dict[int, RowDigest], whole: RowDigest | None
    ) -> tuple[dict[int, RowDigest], RowDigest | None]:
        """Without a digest, more lines than rows prove nothing: a row may have several."""
        longer = {e for e, there in epochs.items() if there.digest is None and there.rows > recorded[e].rows}
        given = total(recorded.values())
        if whole is not None and whole.digest is None and whole.rows > given.rows:
            whole = None
        if longer or whole is None:
            self._ambiguous.append(
                "there are more lines than rows, and a row may have several: digest=True would prove it"
            )
        return {epoch: there for epoch, there in epochs.items() if epoch not in longer}, whole

    def _path(self, file: Listed) -> str:
        return join(self.layout.target, file.name)


def _by_epoch(
    recorded: Mapping[int, RowDigest], listed: Sequence[Listed], row_digests: Mapping[str, RowDigest]
) -> dict[int, RowDigest]:
    """The rows of each epoch all of whose files were read."""
    unread = {file.epoch for file in listed if file.name not in row_digests}
    found = {epoch: RowDigest() for epoch in recorded if epoch not in unread}
    for file in listed:
        if file.epoch in found:
            found[file.epoch] += row_digests[file.name]
    return found


def _by_format(files: Sequence[Listed]) -> dict[str | None, list[Listed]]:
    """In order of epochs, so that halving finds where columns have changed."""
    found: dict[str | None, list[Listed]] = {}
    for file in sorted(files, key=lambda file: (file.epoch, file.name)):
        found.setdefault(digesting.format_of(file.name), []).append(file)
    return found


def _unlike(files: Sequence[Listed]) -> list[list[Listed]]:
    """Batches in which no two files have the same name, by which sums are identified. Nearly always one batch."""
    batches: list[list[Listed]] = []
    seen: dict[str, int] = {}
    for file in files:
        number = seen[file.last] = seen.get(file.last, -1) + 1
        if number == len(batches):
            batches.append([])
        batches[number].append(file)
    return batches


def _visible(files: Files, folder: str, below: str = "") -> Iterator[Entry]:
    """Every file that a reader of the folder sees. As in Spark, names with a leading _ are ignored, except buckets."""
    for entry in files.list(folder):
        if entry.name.startswith(".") or (entry.name.startswith("_") and "=" not in entry.name):
            continue
        name = f"{below}{entry.name}"
        if entry.is_folder:
            yield from _visible(files, join(folder, entry.name), f"{name}/")
        else:
            yield Entry(name, entry.length, False)
