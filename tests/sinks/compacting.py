"""Targets with published epochs and a disk in memory, for tests of compaction; and what readers see of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from epochal.sinks.files.compaction import live
from epochal.sinks.files.compaction.compactor import Compactor
from epochal.sinks.files.layout import HOME, Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.storage.sink_files import OneByOne, SinkFiles
from epochal.txn.files import join
from epochal.txn.model import Attempt
from tests.txn.memory import MemoryFiles

TARGET = "/target"
LINEAGE = "1f0c9a2e-0000"
NOW = 1000.0


class MemoryDisk(MemoryFiles, OneByOne):
    """What a sink needs beyond the protocol, of which compaction uses a part."""

    def __init__(self, content: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.content.update(content or {})

    def head(self, path: str, size: int) -> bytes:
        return self.read(path)[:size]

    def chunks(self, path: str) -> Iterator[bytes]:
        yield self.read(path)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        return self.create(path, b"".join(chunks))

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        self.content[path] = b"".join(self.read(s)[skip if number else 0 :] for number, s in enumerate(sources))

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """Nothing to do."""

    def move_folder(self, source: str, target: str) -> None:
        raise NotImplementedError

    def joins_in_place(self, folder: str) -> bool:
        raise AssertionError("a compaction asks for no joining in place: the old files would be gone too early")

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        raise NotImplementedError


def name_of(epoch: int, part: int = 0, ending: str = ".json", lineage: str = LINEAGE) -> str:
    return f"part-{epoch:012d}-{part:05d}-{lineage[:8]}{ending}"


def publish(
    files: SinkFiles,
    epoch: int,
    parts: Mapping[str, bytes],
    *,
    lineage: str = LINEAGE,
    target: str = TARGET,
    generation: int = 1,
    roll: int = 0,
) -> None:
    """What a sink's commit leaves: the files, then the manifest that lists them."""
    for path, data in parts.items():
        files.create(join(target, path), data)
    entry = PublishedEpoch(
        lineage, epoch, generation, "digest", len(parts), tuple((p, len(d)) for p, d in parts.items()), roll
    )
    name = Layout(target).manifest_name(Attempt(lineage, epoch, generation, roll))
    files.create(join(target, name), entry.encode())


def rows_by_manifest(files: SinkFiles, target: str = TARGET) -> Counter[bytes]:
    """The lines that a reader by manifest sees; FileNotFoundError if one is gone."""
    entries = live.published(files, target)
    return Counter(line for e in entries for path, _ in e.files for line in files.read(join(target, path)).splitlines())


def rows_of_folder(files: SinkFiles, target: str = TARGET) -> Counter[bytes]:
    """The lines that a plain reader of the folder sees."""
    return Counter(line for path in visible(files, target) for line in files.read(join(target, path)).splitlines())


def visible(files: SinkFiles, target: str = TARGET) -> list[str]:
    return [entry.name for entry in files.walk(target) if not entry.name.startswith(HOME)]


def listed(files: SinkFiles, target: str = TARGET) -> dict[int, list[str]]:
    """The files of each epoch, by the manifest and the compactions."""
    return {entry.epoch: [path for path, _ in entry.files] for entry in live.published(files, target)}


def compactor(
    files: SinkFiles,
    *,
    target: str = TARGET,
    max_bytes: int = 1000,
    grace: float = 0.0,
    header: bool | None = None,
    now: float = NOW,
) -> Compactor:
    return Compactor(files, Layout(target), max_bytes, grace=grace, header=header, clock=lambda: now)


def below_home(files: SinkFiles, folder: str, target: str = TARGET) -> list[str]:
    return list(files.names(join(target, HOME, folder)))
