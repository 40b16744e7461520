"""Reads the state of a query from its checkpoint: files only, no Spark. A query may run meanwhile and remove files.

A recovery restores the version after the last commit. Versions beyond it, which an epoch under way may have written,
are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.recovery import changelog, names, stored
from epochal.spark_plugins.recovery.chains import Chain, Sized, chain, chain_by_lineage
from epochal.spark_plugins.recovery.names import Part, Version
from epochal.spark_plugins.recovery.states import OperatorState, Rows, SparkState, StoreState
from epochal.spark_plugins.recovery.stored import EpochSettings, OperatorMetadata
from epochal.txn.errors import Refused
from epochal.txn.files import Entry, Files, join

TRIES = 5
COUNTED = 64 << 20  # bytes of compressed files that are read to count rows, in one reading
FOLDERS = ("SSTs", "logs")


class _Moved(Exception):
    """The query has removed a file while it was read: read again."""


@dataclass
class _Budget:
    """How many bytes may still be read to count rows."""

    left: int

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(frozen=True)
class _Epoch:
    """What the last commit says of the state."""

    number: int
    settings: EpochSettings
    unique: Mapping[int, tuple[frozenset[str], ...]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return self.number + 1


def read_state(files: Files, checkpoint: str, *, counted: int = COUNTED) -> SparkState:
    """The state after the last epoch that Spark has checkpointed. Refused if the folder is no checkpoint.

    Changes are counted until `counted` bytes were read for it; beyond that, rows are estimates.
    """
    SparkCheckpoint(files, checkpoint).query_id()
    for _ in range(TRIES):
        try:
            return _read(files, checkpoint, _Budget(counted))
        except (_Moved, FileNotFoundError):
            continue  # the query goes on: an epoch was committed, and files of old versions are gone
    raise Refused(
        f"{checkpoint}: its files changed {TRIES} times while they were read. Nothing was written. Try again; if it "
        "stays so, the query commits faster than its checkpoint can be listed"
    )


def has_state(files: Files, checkpoint: str) -> bool:
    """Whether the query keeps state. Cheap."""
    return any(names.number(name) is not None for name in files.names(join(checkpoint, "state")))


def _read(files: Files, checkpoint: str, budget: _Budget) -> SparkState:
    epoch = _epoch(files, checkpoint)
    operators, notes = [], list[str]()
    for number in sorted(n for name in files.names(join(checkpoint, "state")) if (n := names.number(name)) is not None):
        folder = join(checkpoint, "state", str(number))
        try:
            metadata = _metadata(files, folder, number)
        except ValueError as fault:
            notes.append(
                f"operator {number}: its metadata cannot be read, so its stores are found by their folders: {fault}"
            )
            metadata = OperatorMetadata(number, "unknown", (), 0)
        stores = tuple(
            _store(files, place, epoch, metadata, partition, store, budget)
            for partition, store, place in _stores(files, folder, epoch.settings.partitions)
        )
        operators.append(OperatorState(metadata, stores))
    # What was removed while it was read belongs to a version that nobody needs, if the last commit is still the last.
    lost = any(operator.missing for operator in operators)
    if lost and SparkCheckpoint(files, checkpoint).committed() != epoch.number:
        raise _Moved
    return SparkState(epoch.number, tuple(operators), epoch.settings, tuple(notes), unique=bool(epoch.unique))


def _epoch(files: Files, checkpoint: str) -> _Epoch:
    number = SparkCheckpoint(files, checkpoint).committed()
    if number < 0:
        return _Epoch(-1, EpochSettings())
    settings = stored.settings(files.read(join(checkpoint, "offsets", str(number))))
    return _Epoch(number, settings, stored.unique_ids(files.read(join(checkpoint, "commits", str(number)))))


def _metadata(files: Files, folder: str, number: int) -> OperatorMetadata:
    """The newest description of an operator: of version 2, one file for each epoch that changed it, or of version 1."""
    folder = join(folder, "_metadata")
    newest = max((n for name in files.names(join(folder, "v2")) if (n := names.number(name)) is not None), default=None)
    if newest is not None:
        return stored.operator(files.read(join(folder, "v2", str(newest))))
    if "metadata" not in files.names(folder):
        raise ValueError("there is none")  # a query of Spark before 4.0, or one that has not finished an epoch
    found = stored.operator(files.read(join(folder, "metadata")))
    if found.operator != number:
        raise ValueError(f"it is of operator {found.operator}")
    return found


def _stores(files: Files, folder: str, count: int | None) -> Iterator[tuple[int, str, str]]:
    """Partition, name and folder of each store.

    A query that was rescaled to fewer partitions leaves the folders of the others, which Spark does not read any more.
    """
    found = (n for name in files.names(folder) if (n := names.number(name)) is not None)
    for partition in sorted(n for n in found if count is None or n < count):
        place = join(folder, str(partition))
        inside = files.list(place)
        own = [e.name for e in inside if e.is_folder and not e.name.startswith(("_", ".")) and e.name not in FOLDERS]
        if own and not any(names.parse(entry.name) for entry in inside):
            yield from ((partition, name, join(place, name)) for name in own)
        else:
            yield partition, "default", place


def _store(
    files: Files, folder: str, epoch: _Epoch, metadata: OperatorMetadata, partition: int, store: str, budget: _Budget
) -> StoreState:
    entries = files.list(folder)
    own = [Sized(file, e.length) for e in entries if not e.is_folder and (file := names.parse(e.name)) is not None]
    reader = _Reader(files, folder, epoch.settings.codec, budget)
    found = _chain(own, epoch, metadata.operator, partition, reader)
    provider = next((file.file.part.provider for file in own), None)
    listed = [e for name in FOLDERS if any(x.name == name for x in entries) for e in files.list(join(folder, name))]
    at_snapshot = _snapshot(reader, found)
    replay, rows = _rows(reader, found, at_snapshot.rows)
    return StoreState(
        partition=partition,
        store=store,
        provider=provider,
        snapshot=None if found.snapshot is None else found.snapshot.file.version.number,
        extent=found.extent,
        snapshot_bytes=at_snapshot.bytes + (0 if found.snapshot is None else found.snapshot.bytes),
        replay_bytes=found.replay_bytes,
        replay_rows=replay,
        rows=rows,
        stored_bytes=_visible([*entries, *listed]),
        missing=found.missing,
        families=at_snapshot.families,
        has_changelog=any(file.file.part is Part.CHANGELOG for file in own),
    )


def _visible(entries: list[Entry]) -> int:
    """All bytes but those of checksums."""
    return sum(e.length for e in entries if not e.is_folder and not e.name.endswith(".crc"))


class _Reader:
    """Reads files of one store."""

    def __init__(self, files: Files, folder: str, codec: str, budget: _Budget) -> None:
        self._files, self._folder, self._codec, self.budget = files, folder, codec, budget

    def snapshot(self, file: Sized) -> stored.SnapshotContents:
        """The list of files of a snapshot of RocksDB."""
        path = join(self._folder, file.file.name)
        with _naming(path):
            return stored.snapshot(self._files.read(path))

    def changes(self, file: Sized, *, keys: bool = False) -> changelog.Changes | None:
        """What a file changes; None if it cannot be decoded here."""
        path = join(self._folder, file.file.name)
        with _naming(path):
            plain = changelog.plain(self._files.read(path), self._codec)
            return None if plain is None else changelog.changes(plain, keys=keys)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except ValueError as fault:
        raise Refused(
            f"{path}: {fault}. Spark could not restore this version either: restore the file from a copy"
        ) from None


def _chain(own: list[Sized], epoch: _Epoch, operator: int, partition: int, reader: _Reader) -> Chain:
    newest = [file for file in own if file.file.version.number == epoch.version]
    ids = epoch.unique.get(operator, ())
    known = ids[partition] if partition < len(ids) else frozenset()
    named = [file for file in newest if file.file.version.unique is not None]
    chosen = [file for file in named if file.file.version.unique in known] or named
    if not chosen:
        return chain(own, epoch.version)
    # A snapshot needs no lineage; else it is in the changelog.
    head = min(chosen, key=lambda file: not file.file.part.is_snapshot)
    line: tuple[Version, ...] = ()
    if not head.file.part.is_snapshot:
        found = reader.changes(head)
        line = () if found is None else found.lineage
    return chain_by_lineage(own, [*line, head.file.version])


def _snapshot(reader: _Reader, found: Chain) -> stored.SnapshotContents:
    if found.snapshot is None or found.snapshot.file.part is not Part.ZIP:
        return stored.SnapshotContents(None)
    return reader.snapshot(found.snapshot)


def _rows(reader: _Reader, found: Chain, at_snapshot: int | None) -> tuple[Rows | None, Rows | None]:
    """The changes to replay, and the rows of the version.

    Rows are exact where the snapshot counts them and nothing follows, and where all that is loaded was read here. A
    snapshot of RocksDB does not say which keys it has: then its count is an estimate. So is one with column families
    and no snapshot, which would say which families are Spark's own.
    """
    replay_only = found.snapshot is None or found.snapshot.file.part is Part.SNAPSHOT
    chain_files = ([found.snapshot] if found.snapshot is not None and replay_only else []) + list(found.replayed)
    if not found.missing and reader.budget.take(sum(file.bytes for file in chain_files)):
        live, replay, is_exact = set[bytes](), 0, True
        for file in chain_files:
            read = reader.changes(file, keys=replay_only)
            if read is None:
                return None, None if at_snapshot is None else Rows(at_snapshot, exact=not found.extent)
            live = (live - read.gone) | read.live
            is_exact = is_exact and not read.has_families
            replay += 0 if file is found.snapshot else read.rows
        if replay_only:
            return Rows(replay), Rows(len(live), exact=is_exact)
        return Rows(replay), None if at_snapshot is None else Rows(at_snapshot, exact=not found.extent)
    replay_rows = _estimated(reader, found)
    if replay_only:
        return replay_rows, None
    return replay_rows, None if at_snapshot is None else Rows(at_snapshot, exact=not found.extent)


def _estimated(reader: _Reader, found: Chain) -> Rows | None:
    """The changes to replay, by those in the newest file and by bytes."""
    if not found.replayed:
        return Rows(0)
    newest = found.replayed[-1]
    read = reader.changes(newest)
    if read is None or not newest.bytes:
        return None
    return Rows(round(read.rows * found.replay_bytes / newest.bytes), exact=len(found.replayed) == 1)
