"""Takes a savepoint of a stream, whether its query runs or not.

The order in which a checkpoint may be copied while its query runs: pin N, the last epoch that Spark has checkpointed
and every sink shows; the journal; then state, sources, offsets and commits; of all of them only what belongs to N.
Files of N do not change any more. Spark's maintenance and the journal's folding may remove them: then a newer N is
pinned.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import attrgetter

from epochal._version import __version__
from epochal.spark_plugins.moving import layout, state_files
from epochal.spark_plugins.moving.manifest import Manifest, SavedFile, SinkPosition, known_digests
from epochal.spark_plugins.moving.origin import JournalCopy, Moving, Origin, check_place, refuse_moved
from epochal.spark_plugins.moving.store import SavepointStore, digest_of, in_chunks
from epochal.spark_plugins.recovery import stored
from epochal.spark_plugins.source_logs import NotIdentifiable, Sources
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.driver_facts import this_driver
from epochal.txn.errors import DataLost, Refused
from epochal.txn.files import Entry, join
from epochal.txn.model import lineage_of, lineage_tag
from epochal.txn.rescaling import refuse_unfinished

log = logging.getLogger("epochal")

TRIES = 5
AT_ONCE = 8  # files that are copied at a time
ORDER = (layout.STATE, layout.SOURCES, *layout.LOGS)  # and then the rest


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy is."""

    files: int
    files_in_all: int
    bytes: int
    bytes_in_all: int


OnProgress = Callable[[Progress], None]


def take(
    checkpoint: str,
    target: str,
    *,
    journal: str | None = None,
    on_progress: OnProgress = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Take a savepoint of the stream of a checkpoint into the folder `target`, and verify it.

    The stream may run. The savepoint is of the last epoch that Spark has checkpointed and every sink shows. Raises
    Refused if there is none.
    """
    origin = Origin.at(checkpoint, journal)
    files, place = resolve_checkpoint(target)
    check_place(origin, files, place)
    return Taking(origin, SavepointStore(files, place), on_progress, clock).take()


@dataclass(frozen=True)
class Taking:
    """Takes one savepoint."""

    origin: Origin
    store: SavepointStore
    on_progress: OnProgress = lambda _: None
    clock: Callable[[], float] = time.time

    def take(self) -> Manifest:
        """Take it; with a newer epoch if files vanish meanwhile, a few times."""
        _, journal = self.origin.current()  # refused before anything is written
        view = journal.read()
        refuse_moved(self.origin.path, view)
        refuse_unfinished(view, "no savepoint can be taken")
        why = ""
        for number in range(TRIES):
            try:
                return self._take(sweeps=number > 0)
            except Moving as moved:
                why = str(moved)
                log.info("savepoint begun again", extra={"reason": why})
        raise Refused(
            f"{self.origin.path}: files vanished {TRIES} times while they were copied: {why}. No savepoint was taken. "
            "Stop the query for it, or let Spark keep more (spark.sql.streaming.minBatchesToRetain)"
        )

    def _take(self, *, sweeps: bool) -> Manifest:
        incarnation, journal = self.origin.current()
        epoch = self.origin.settled(journal)
        if epoch < 0:
            raise Refused(
                f"{self.origin.path}: no epoch is checkpointed and visible in every sink yet. No savepoint was taken. "
                "Take it after the first epoch"
            )
        query = self.origin.checkpoint.query_id()
        lineage = lineage_of(query, incarnation)
        name = f"{lineage_tag(lineage)}-{epoch:012d}-{uuid.uuid4().hex[:4]}"
        me = this_driver(__version__).to_json()
        self.store.begin(name, me, self.clock())
        dead = self.store.give_up_dead(name, self.clock())
        try:
            copied = self.origin.journal_at(epoch)
            manifest = Manifest(
                name=name,
                query=query,
                lineage=lineage,
                epoch=epoch,
                generation=copied.view.generation,
                checkpoint=self.origin.path,
                journal=journal.place,
                at=datetime.datetime.fromtimestamp(self.clock(), datetime.UTC).isoformat(timespec="milliseconds"),
                driver=me,
                versions=_versions(),
                sinks=_positions(copied, epoch),
                sources=self.origin.checkpoint.sources(epoch),
            )
            whole = self._store(manifest, copied)
        except Moving:
            self.store.end(name)  # what is stored is what the next try needs, and is swept after it
            raise
        # After any other error its name stays in `taking`: once this process has ended, the next savepoint sweeps.
        self.store.end(name)
        if dead or sweeps:
            self.store.sweep(name, me, dead)
        return whole

    def _store(self, manifest: Manifest, copied: JournalCopy) -> Manifest:
        entries = self._listed(manifest.epoch)
        size = sum(entry.length for entry in entries) + sum(map(len, copied.files.values()))
        copier = _Copier(self, manifest, len(entries) + len(copied.files), size)
        saved = [copier.store_bytes(name, data) for name, data in copied.files.items()]
        saved += copier.copy_all(entries)
        _check_whole(manifest.epoch, [e.name for e in entries], saved, copier.listed)
        # What a savepoint that died has stored is no better known than what this one has.
        proven = copier.proven - {file.sha256 for file in copier.new}  # what was damaged or gone is stored anew
        unproven = list({file.sha256: file for file in saved if file.sha256 not in proven}.values())
        if (changed := self.store.verify_new(unproven)) is not None:
            raise Moving(f"{changed} changed while it was copied")
        whole = replace(
            manifest,
            files=tuple(sorted(saved, key=attrgetter("path"))),
            stored=sum(file.bytes for file in copier.new),
        )
        if not self.store.create(whole, unproven):
            raise Refused(
                f"{self.store.place}: {manifest.name} was given up by another process. No savepoint was taken"
            )
        if missing := self.store.missing(whole):
            self.store.remove(whole.name)
            raise Moving(f"{missing[0]} was removed from {self.store.place}")
        return whole

    def _listed(self, epoch: int) -> list[Entry]:
        """Every file of the checkpoint that belongs to an epoch, in the order in which they are copied."""
        counters = self._counters(epoch)
        tops = [e for e in self.origin.files.list(self.origin.path) if not layout.is_of_journal(e.name)]
        tops.sort(key=lambda e: ORDER.index(e.name) if e.name in ORDER else len(ORDER))
        found: list[Entry] = []
        everything: list[str] = []
        for top in tops:
            below = self._below(top) if top.is_folder else [top]
            everything += [e.name for e in below]
            found += [e for e in below if layout.belongs(e.name, epoch, counters)]
        names = [e.name for e in found]
        if faults := state_files.faults(everything, names, epoch):
            raise Moving(faults[0])
        return found

    def _below(self, top: Entry) -> list[Entry]:
        return [
            Entry(f"{top.name}/{e.name}", e.length, False)
            for e in self.origin.files.walk(join(self.origin.path, top.name))
            if not e.is_folder
        ]

    def _counters(self, epoch: int) -> dict[str, int]:
        """The last batch of each file source at an epoch."""
        path = join(self.origin.path, "offsets", str(epoch))
        try:
            return counters_of(self.origin.files.read(path))
        except FileNotFoundError:
            raise Moving(f"{path} is gone") from None


class _Copier:
    """Copies the files of one savepoint, several at a time."""

    def __init__(self, taking: Taking, manifest: Manifest, files: int, size: int) -> None:
        self._taking, self._store = taking, taking.store
        self._files, self._size = files, size
        self._done = self._copied = 0
        self.new: list[SavedFile] = []
        self.listed: dict[str, int] = {}  # files that zips of state stores need, and their lengths
        earlier = self._store.manifests()
        self.proven = {file.sha256 for m in earlier for file in m.files}  # content that a savepoint has already
        same = [m for m in earlier if (m.lineage, m.checkpoint) == (manifest.lineage, manifest.checkpoint)]
        newest = max(same, key=attrgetter("epoch", "at"), default=None)
        self._known = known_digests(newest) if newest is not None else lambda _path, _size, _modified: None

    def store_bytes(self, name: str, data: bytes) -> SavedFile:
        """Store what is in memory already."""
        file = SavedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        self._put(file, in_chunks(data))
        return file

    def copy_all(self, entries: Iterable[Entry]) -> list[SavedFile]:
        """Store files of the checkpoint; without those that vanish meanwhile. The first error is raised."""
        with ThreadPoolExecutor(AT_ONCE, "epochal-savepoint") as pool:
            found = pool.map(self._copied_or_gone, entries)
            return [file for file in found if file is not None]

    def _copied_or_gone(self, entry: Entry) -> SavedFile | None:
        try:
            return self._copy(entry)
        except FileNotFoundError:
            return None

    def _copy(self, entry: Entry) -> SavedFile:
        files, path = self._taking.origin.files, join(self._taking.origin.path, entry.name)
        modified = files.modified(path)
        self._look_inside(entry, path)
        digest, size = self._known(entry.name, entry.length, modified), entry.length
        if digest is None or self._store.files.length(self._store.object(digest)) != size:
            digest, size = digest_of(files, path)
        file = SavedFile(path=entry.name, bytes=size, sha256=digest, modified=modified)
        self._put(file, files.chunks(path))
        return file

    def _look_inside(self, entry: Entry, path: str) -> None:
        if entry.name.startswith("state/") and entry.name.endswith(".zip"):
            folder = entry.name.rpartition("/")[0]
            try:
                listed = stored.snapshot(self._taking.origin.files.read(path)).files
            except ValueError as fault:
                raise DataLost(
                    f"{path}: {fault}. Spark could not restore this version either. No savepoint was taken. Restore "
                    "the file from a copy"
                ) from None
            self.listed.update({join(folder, name): size for name, size in listed.items()})

    def _put(self, file: SavedFile, chunks: Iterator[bytes]) -> None:
        if self._store.put(file, chunks):
            self.new.append(file)
        self._done += 1
        self._copied += file.bytes
        self._taking.on_progress(Progress(self._done, self._files, self._copied, self._size))


def counters_of(offsets: bytes) -> dict[str, int]:
    r"""The last batch of each file source, from ``offsets/N``.

    >>> counters_of(b'v1\n{}\n{"logOffset":7}\n{"orders":{"0":120}}')
    {'0': 7}
    """
    try:
        sources = Sources.parse(offsets)
    except NotIdentifiable:
        return {}
    found = {}
    for name in sources.offsets:
        try:
            found[name] = sources.counter(name)
        except (NotIdentifiable, ValueError, KeyError, TypeError):
            continue  # another kind of source
    return found


def _check_whole(epoch: int, listed: list[str], saved: list[SavedFile], needed: dict[str, int]) -> None:
    """Raise Moving if files vanished without which the copy is none of this epoch."""
    there = {file.path: file.bytes for file in saved}
    gone = [name for name in listed if name not in there]
    if lost := [name for name in gone if name.partition("/")[0] not in (layout.STATE, *layout.LOGS)]:
        raise Moving(f"{lost[0]} is gone")
    if lost := [name for name in layout.required(epoch) if name not in there]:
        raise Moving(f"{lost[0]} is gone")
    if faults := state_files.faults(listed, there, epoch):
        raise Moving(faults[0])
    for name, size in needed.items():
        if there.get(name) != size:
            raise Moving(f"{name} is gone, or has not {size} bytes; a snapshot of the state lists it")


def _positions(copied: JournalCopy, epoch: int) -> dict[str, SinkPosition]:
    """What each sink of the newest start has at an epoch."""
    view = copied.view
    totals = view.totals(through=epoch)
    found = {}
    for name, described in (view.latest.sinks if view.latest else {}).items():
        spans = [span for span in totals.sinks.get(name, ()) if span.target == described.target]
        row = spans[-1].row_digest if spans else None
        found[name] = SinkPosition(
            type=described.kind,
            target=described.target,
            epoch=epoch,
            rows=None if row is None else row.rows,
            digest=None if row is None else row.digest,
        )
    return found


def _versions() -> dict[str, str]:
    return {"epochal": __version__, "pyspark": importlib.metadata.version("pyspark")}
